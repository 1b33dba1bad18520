"""Each example as a user runs it: the whole system, for a few rollouts."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.responses import Response

from lightstream.schemas.http_server import HttpServer
from lightstream.schemas.settings import Settings
from lightstream.trainers import make_tiny_model
from lightstream.up.unit import child_environment
from tests.producers.llm_proxy.upstreams import ScriptedUpstream, completion
from tests.support.processes import processes_of

ROOT = Path(__file__).parents[2]
ACCOUNTED = "is accounted for"


def run(example: str, settings: Settings, *arguments: str) -> str:
    """What the example prints. It must end with status 0 and leave no process behind."""
    data_dir = settings.data_dir / example
    done = subprocess.run(
        [sys.executable, "-m", f"examples.{example}", "--data-dir", str(data_dir), *arguments],
        cwd=ROOT,
        env=child_environment(settings) | {"COLUMNS": "160"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert not processes_of(data_dir)
    assert any(line.startswith("yes") and ACCOUNTED in line for line in done.stdout.splitlines()), done.stdout
    return done.stdout


def cells(output: str, first: str) -> list[str]:
    """The row of a table that begins with ``first``."""
    rows = [[cell.strip() for cell in line.strip().strip("│").split("│")] for line in output.splitlines()]
    return next(row for row in rows if row[0] == first)


def test_two_calls(settings: Settings) -> None:
    output = run("two_calls", settings, "--steps", "1", "--groups", "2", "--samples", "2")
    assert "step 1 of 1: 4 rollouts, 8 calls" in output
    assert cells(output, "LLM calls made")[1] == cells(output, "in triplets")[1] == "8"
    shown = [line.split("│")[1].strip() for line in output.splitlines() if line.startswith("│")][:3]
    assert shown == ["chat.completion", "tool", "chat.completion"]


def test_tool_router_trains_a_given_model(settings: Settings, tmp_path: Path) -> None:
    model = make_tiny_model(tmp_path / "model")
    output = run("tool_router", settings, "--model", str(model), "--steps", "2", "--groups", "2", "--samples", "2")
    assert f"The model is {model}" in output.replace("\n", "")
    assert cells(output, "trajectories trained")[1] == "8"
    assert "mean reward of the last five steps at least" not in output, "that is asked of the tiny model only"


@pytest.fixture
def upstream(settings: Settings) -> Iterator[tuple[ScriptedUpstream, str]]:
    """A server whose model answers ``A``, always; its first answer is an error."""
    scripted = ScriptedUpstream()
    letter = completion()
    letter["choices"][0]["message"]["content"] = "A: because"
    answers = iter([Response("out of memory", 500)])
    scripted.answer = lambda _: next(answers, letter)
    server = HttpServer(scripted.app, settings, name="upstream", port=0, setting="")
    yield scripted, f"{server.start()}/v1"
    server.stop()


def test_tool_router_with_an_endpoint_rolls_out_and_trains_nothing(
    settings: Settings, upstream: tuple[ScriptedUpstream, str]
) -> None:
    scripted, url = upstream
    output = run("tool_router", settings, "--endpoint", url, "--groups", "8", "--samples", "2")
    assert "nothing is trained" in output.replace("\n", " ")
    assert cells(output, "all")[1:3] == ["16", "0"], "the rollout that met the error was tried again"
    assert cells(output, "LLM calls made")[1] == "17"
    assert cells(output, "in triplets")[1] == "16"
    assert "1 calls are no training data (attempt_not_final)" in output
    assert cells(output, "trajectories trained")[1] == "0"
    assert scripted.asked[0]["model"] == "m", "the one that the server lists"
    assert "Answer with its letter only" in scripted.asked[0]["messages"][0]["content"]
