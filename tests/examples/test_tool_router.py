"""The demonstration with what a user may give it: a model, or an endpoint."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.responses import Response

from lightstream.runtime.http.server import HttpServer
from lightstream.runtime.settings import Settings
from lightstream.trainers import make_tiny_model
from tests.examples.programs import cells, run
from tests.producers.llm_proxy.upstreams import ScriptedUpstream, completion


def test_tool_router_trains_a_given_model(settings: Settings, tmp_path: Path) -> None:
    model = make_tiny_model(tmp_path / "model")
    output = run("tool_router", settings, "--model", str(model), "--steps", "2", "--groups", "2", "--samples", "2")
    assert f"The model is {model}" in output.replace("\n", "")
    assert cells(output, "trajectories consumed")[1] == "8"
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
    assert "1 calls are not training data (attempt_not_final)" in output
    assert cells(output, "trajectories consumed")[1] == "0"
    assert scripted.asked[0]["model"] == "m", "the one that the server lists"
    assert "Answer with its letter only" in scripted.asked[0]["messages"][0]["content"]
