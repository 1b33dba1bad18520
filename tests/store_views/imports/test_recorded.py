"""Exports of other tools, as they wrote them (``samples/README.md`` says how): the same calls from each."""

from __future__ import annotations

from pathlib import Path

import pytest

from lightstream.schemas.types import Triplet
from lightstream.store_views.imports import ImportedTrace, read_traces
from lightstream.stream_processors.adapters import TracerTraceToTriplet, TraceToMessages

SAMPLES = Path(__file__).parent / "samples"

FIRST = ([11, 12, 13], [21, 22], [-0.5, -0.25])
SECOND = ([11, 12, 13, 21, 22, 31], [41, 42, 43], [-0.5, -0.25, -1.0])
CALL = {"id": "call-1", "type": "function", "function": {"name": "weather", "arguments": '{"at": "sea"}'}}
TALK = [
    {"role": "user", "content": "Weather at sea?"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "content": "wind", "tool_call_id": "call-1"},
    {"role": "assistant", "content": "Windy."},
]


def read(name: str, score: str | None = None) -> ImportedTrace:
    (trace,) = read_traces(SAMPLES / name, score=score)
    return trace


def triplets(trace: ImportedTrace, name: str = ".") -> list[Triplet]:
    return TracerTraceToTriplet(llm_call_match=name, repair_hierarchy=False).adapt(trace.spans)


def tokens(triplet: Triplet) -> tuple[list[int], list[int], list[float]]:
    logprobs = [item["logprob"] for item in triplet.response["logprobs"]]
    return triplet.prompt["token_ids"], triplet.response["token_ids"], logprobs


@pytest.mark.parametrize("name", ["phoenix_client.jsonl", "phoenix_dataframe.jsonl", "phoenix_otlp.json"])
def test_what_phoenix_exports(name: str) -> None:
    trace = read(name)
    spans = trace.spans[:5]
    assert [span.name for span in spans] == ["ChatCompletion", "weather", "ChatCompletion", "broken", "planner"]
    root = spans[-1]
    assert {span.parent_id for span in spans[:-1]} == {root.span_id}
    assert root.parent_id is None
    assert [s.status.description for s in trace.spans if s.status.status_code == "ERROR"] == ["no boat"]
    calls = triplets(trace, "^ChatCompletion$")
    assert [tokens(call) for call in calls] == [FIRST, SECOND]
    assert [call.metadata["response_id"] for call in calls] == ["chatcmpl-1", "chatcmpl-2"]
    assert {call.metadata["agent_name"] for call in calls} == {"planner"}
    assert [call.reward for call in calls] == [None, 1.0 if name == "phoenix_client.jsonl" else None], "annotations"
    first, second = TraceToMessages().adapt(trace.spans)
    assert (first["messages"], second["messages"]) == (TALK[:2], TALK)
    assert first["tools"] is not None


def test_what_langfuse_exports() -> None:
    trace = read("langfuse_trace.json", "right")
    assert trace.task == {"question": "Weather at sea?"}
    without, call = triplets(trace, "^answer$")
    assert (without.prompt["token_ids"], without.reward) == ([], None)
    assert (tokens(call), call.reward) == (SECOND, 1.0)
    assert {t.metadata["agent_name"] for t in (without, call)} == {"planner"}
    assert [line["messages"] for line in TraceToMessages().adapt(trace.spans)] == [TALK[:2], TALK]
    rewards = [call.reward for call in triplets(read("langfuse_trace.json", "quality"), "^answer$")]
    assert rewards == [0.25, None], "a score of one observation"


def test_what_harbor_writes() -> None:
    trace = read("atif_harbor.json")
    calls = triplets(trace, "^chat$")
    assert [(call.metadata["agent_name"], tokens(call)) for call in calls] == [
        ("planner", FIRST),
        ("planner", SECOND),
        ("searcher", ([51, 52], [61], [-0.125])),
    ]
    assert calls[-1].reward == 1.0
    planner = next(s for s in trace.spans if s.attributes.get("agent.name") == "planner")
    searcher = next(s for s in trace.spans if s.attributes.get("agent.name") == "searcher")
    assert (planner.parent_id, searcher.parent_id) == (None, planner.span_id)
