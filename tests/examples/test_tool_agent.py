"""The agent that calls a tool: trained until it counts on the right shelf and says what the tool says."""

from __future__ import annotations

import pytest

from lightstream.runtime.settings import Settings
from tests.examples.programs import cells, run
from tests.trainers.vllm_servers.vllm import PYTHON

pytestmark = pytest.mark.timeout(3600)


def check(output: str) -> None:
    assert any(line.startswith("yes") and "mean reward of the last five steps" in line for line in output.splitlines())
    assert cells(output, "LLM calls made")[1] == cells(output, "in triplets")[1] != "0"


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(3))
def test_it_learns_whatever_the_seed(settings: Settings, seed: int) -> None:
    check(run("tool_agent", settings, "--seed", str(seed)))


@pytest.mark.vllm
def test_it_learns_with_vllm(settings: Settings) -> None:
    check(run("tool_agent", settings, "--vllm-python", str(PYTHON)))
