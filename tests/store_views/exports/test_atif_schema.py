"""What we write as ATIF, held against the format's own schema.

``atif_1_8.schema.json`` is ``Trajectory.model_json_schema()`` of ``harbor.models.trajectories`` (harbor 0.25.0, which
needs Python 3.12), without titles and descriptions. What its models check beyond that is asserted here.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from lightstream.store_views.exports import conversations_of, to_atif
from tests.store_views.log_file import LogFile
from tests.stream_processors.assembly.build import closed, opened, proxy_span, reward_span

from .test_exports import ASKED, FIRST, RESULT, SECOND, TOOL, asks, talk

SCHEMA = Draft202012Validator(json.loads((Path(__file__).parent / "atif_1_8.schema.json").read_text("utf-8")))
ONLY_OF_AGENTS = {"model_name", "reasoning_effort", "reasoning_content", "tool_calls", "metrics"}
NOT_WITHOUT_A_CALL = {"metrics", "reasoning_content"}


def check(document: dict[str, Any]) -> None:
    """What ``harbor.utils.trajectory_validator`` checks of a document without sub-agents."""
    plain = json.loads(json.dumps(document, allow_nan=False))
    assert [error.message for error in SCHEMA.iter_errors(plain)] == []
    assert [step["step_id"] for step in plain["steps"]] == list(range(1, len(plain["steps"]) + 1))
    for step in plain["steps"]:
        assert step["source"] == "agent" or not ONLY_OF_AGENTS & step.keys()
        assert step.get("llm_call_count") != 0 or not NOT_WITHOUT_A_CALL & step.keys()
        asked = {call["tool_call_id"] for call in step.get("tool_calls", ())}
        results = step.get("observation", {"results": []})["results"]
        assert {result["source_call_id"] for result in results} <= asked


def odd(log: LogFile) -> dict[str, Any]:
    """Examples in the prompt, a rewritten history, reasoning, results of nobody's calls, no log-probabilities."""
    few_shot = [*ASKED, SECOND, {"role": "tool", "content": "lost", "tool_call_id": "never"}]
    thinking = SECOND | {"reasoning_content": "Hm."}
    spans = [
        proxy_span(1, request_json=said(few_shot), response_json=json.dumps(thinking), response_logprobs=None),
        proxy_span(2, request_json=said([*ASKED, FIRST, RESULT, RESULT]), response_json=json.dumps(FIRST)),
        proxy_span(3, request_json=said([{"role": "user", "content": "Anew."}]), response_json="no JSON"),
        proxy_span(4, http_status=500, error_message="boom"),
        reward_span(5, {"x": 0.5, "y": 1.0}),
    ]
    (trajectory,) = log.write_and_assemble(opened(input_json='{"q": [1]}'), *spans, closed())
    return to_atif(trajectory, conversations_of(asks(log), trajectory))


def said(messages: list[dict[str, Any]]) -> str:
    return json.dumps({"messages": messages, "tools": [TOOL]})


def empty(log: LogFile) -> dict[str, Any]:
    (trajectory,) = log.write_and_assemble(opened(), closed())
    return to_atif(trajectory, [])


def test_a_conversation_with_tools_is_valid(log: LogFile) -> None:
    trajectory = talk(log)
    check(to_atif(trajectory, conversations_of(asks(log), trajectory)))


@pytest.mark.parametrize("made", [odd, empty])
def test_odd_trajectories_are_valid(log: LogFile, made: Any) -> None:
    check(made(log))


def test_the_schema_refuses_what_is_none(log: LogFile) -> None:
    with pytest.raises(AssertionError, match="unknown"):
        check(empty(log) | {"unknown": 1})
