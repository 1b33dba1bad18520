"""ATIF in: what it leaves open, what is wrong in it, and that what we wrote comes back whole."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightstream.schemas.errors import SettingsError
from lightstream.schemas.packing import unpack_float32, unpack_int32
from lightstream.schemas.records import SpanRecord, Trajectory
from lightstream.store_views.exports import to_atif
from lightstream.store_views.imports import ImportedTrace, read_traces
from lightstream.store_views.stores.kafka.span_record import span_record
from lightstream.stream_processors.core.assembly import AssemblyRules
from tests.stream_processors.assembly.build import assemble, framework_span, proxy_span, reward_span, span_id


def read(*documents: Any) -> list[ImportedTrace]:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "trajectories.jsonl"
        path.write_text("\n".join(map(json.dumps, documents)))
        return read_traces(path)


def assembled(trace: ImportedTrace, rules: AssemblyRules | None = None) -> Trajectory:
    where = {"rollout_id": "r1", "attempt_id": "r1-a1"}
    spans = [span.model_copy(update={**where, "sequence_id": n}) for n, span in enumerate(trace.spans, start=1)]
    return assemble(*map(span_record, spans), rules=rules)


def plain(trajectory: Trajectory) -> list[tuple[Any, ...]]:
    """What of the calls is data, and who made them."""
    return [
        (
            unpack_int32(t.prompt_token_ids).tolist(),
            unpack_int32(t.response_token_ids).tolist(),
            None if t.response_logprobs is None else unpack_float32(t.response_logprobs).tolist(),
            t.response_mask,
            t.reward,
            t.agent_name,
            t.finish_reason,
            t.policy_version,
            t.model,
            t.response_id,
            t.choice_index,
        )
        for t in trajectory.triplets
    ]


TOKENS = st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=4)
REWARD = st.floats(-4, 4, width=32)


@st.composite
def attempts(draw: st.DrawFn) -> list[SpanRecord]:
    """Calls of several agents, choices of one answer among them, with rewards of single calls and of the whole."""
    spans: list[SpanRecord] = []
    for number in range(1, draw(st.integers(1, 5)) + 1):
        agent = draw(st.sampled_from([None, "planner", "writer"]))
        response = draw(TOKENS)
        fields: dict[str, Any] = {
            "attributes": {} if agent is None else {"agent.name": agent},
            "finish_reason": draw(st.sampled_from([None, "stop", "length"])),
            "response_logprobs": draw(st.sampled_from([None, b"\x00\x00\x80\xbf" * len(response)])),
            "policy_version": draw(st.sampled_from([None, 7])),
            "response_model": draw(st.sampled_from([None, "policy@3", "other"])),
        }
        if draw(st.booleans()) and number > 1 and spans[-1].llm_call is not None:
            last = spans[-1].llm_call
            fields |= {"response_id": last.response_id, "choice_index": last.choice_index + 1}
        spans.append(proxy_span(number, draw(TOKENS), response, **fields))
        if draw(st.booleans()):
            value = {"a": draw(REWARD), "b": draw(REWARD)} if draw(st.booleans()) else draw(REWARD)
            spans.append(reward_span(100 + number, value, link={"span_id": span_id(number)}))
    if draw(st.booleans()):
        spans.append(reward_span(200, {"right": draw(REWARD), "short": 1.0}))
    return spans


@given(attempts(), st.sampled_from(["identical", "identical_plus_own", "last_call_only", "discounted:0.5"]))
def test_what_was_exported_comes_back(spans: list[SpanRecord], credit: str) -> None:
    rules = AssemblyRules(credit=credit)
    before = assemble(*spans, rules=rules)
    (trace,) = read(to_atif(before, []))
    after = assembled(trace, rules)
    assert plain(after) == plain(before)
    assert (after.reward, after.drops) == (before.reward, [])
    assert [(r.name, r.value, r.dimension, r.call_index) for r in after.rewards if r.call_index is None] == [
        (r.name, r.value, r.dimension, r.call_index) for r in before.rewards if r.call_index is None
    ]


def test_a_reward_for_several_calls_comes_back_with_each() -> None:
    spans = [framework_span(8), framework_span(9, parent=8), proxy_span(1, parent=9), proxy_span(2, parent=9)]
    before = assemble(*spans, proxy_span(3), reward_span(4, 0.5, link={"span_id": span_id(9)}))
    (trace,) = read(to_atif(before, []))
    assert [t.reward for t in assembled(trace).triplets] == [0.5, 0.5, None]


def test_a_missing_model_and_version_stay_missing() -> None:
    """What the document names as its model would be taken for that of each call."""
    before = assemble(proxy_span(1), proxy_span(2, response_model=None))
    document = to_atif(before, [])
    assert "model_name" not in document["agent"]
    (trace,) = read(document)
    assert [(t.model, t.policy_version) for t in assembled(trace).triplets] == [("policy@3", 3), ("", None)]
    assert to_atif(assemble(proxy_span(1), proxy_span(2)), [])["agent"]["model_name"] == "policy@3"


def test_agents_are_those_that_steps_name_else_the_documents() -> None:
    steps = [step(2), step(3, step_id=2, extra={"lightstream": {"agent_name": "b"}})]
    steps.append(step(4, step_id=3, extra={"lightstream": {"agent_name": None}}))
    (trace,) = read(document(*steps))
    assert [t.agent_name for t in assembled(trace).triplets] == ["a", "b", None]


def step(response: int, **fields: Any) -> dict[str, Any]:
    tokens = {"prompt_token_ids": [1], "completion_token_ids": [response]}
    return {"step_id": 1, "source": "agent", "message": "x", "metrics": tokens} | fields


def document(*steps: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"schema_version": "ATIF-v1.4", "session_id": "S", "agent": {"name": "a"}, "steps": list(steps)} | fields


def responses(trace: ImportedTrace) -> list[list[int]]:
    return [unpack_int32(t.response_token_ids).tolist() for t in assembled(trace).triplets]


def test_trajectories_of_one_session_are_told_apart() -> None:
    first, second = read(document(step(2)), document(step(3)), document(step(2)))  # one of them is there twice
    assert first.trace_id != second.trace_id
    assert responses(first) == [[2]]
    named = [trace.trace_id for trace in read(*(document(step(n), trajectory_id=f"t{n}") for n in (2, 3)))]
    assert len(set(named)) == 2


def test_steps_without_an_id_or_with_the_same_are_calls_of_their_own() -> None:
    unnamed = [{key: value for key, value in step(n).items() if key != "step_id"} for n in (3, 4)]
    (trace,) = read(document(step(2), *unnamed, step(5)))
    assert responses(trace) == [[2], [3], [4], [5]]


def test_calls_that_name_one_response_stay_two() -> None:
    extra = {"lightstream": {"response_id": "chatcmpl-1"}}
    (trace,) = read(document(step(2, extra=extra), step(3, step_id=2, extra=extra)))
    assert responses(trace) == [[2], [3]]


def test_what_credit_made_of_a_step_counts_where_nothing_else_is_told() -> None:
    extra = {"lightstream": {"reward": 0.25, "policy_version": 3}}
    (trace,) = read(document(step(2, extra=extra), step(3, step_id=2), extra={"reward": 0.5}))
    assert [(t.reward, t.agent_name) for t in assembled(trace).triplets] == [(0.25, "a"), (0.5, "a")]


@pytest.mark.parametrize(
    "wrong",
    [
        {"agent": "text"},
        {"steps": {}},
        {"steps": ["text"]},
        {"steps": [step(2, metrics=[])]},
        {"steps": [step(2, extra=[1])]},
        {"steps": [step(2, extra={"lightstream": {"rewards": ["much"]}})]},
        {"steps": [step(2, tool_calls=["t"])]},
        {"steps": [step(2, observation={"results": ["text"]})]},
        {"steps": [step(2, observation="text")]},
        {"subagent_trajectories": ["text"]},
        {"extra": "text"},
        {"final_metrics": 3},
    ],
)
def test_parts_of_another_type_are_refused_by_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match=r"document 2 of .*trajectories.jsonl: .*is not an? (object|list)"):
        read(document(step(2)), document(step(2)) | wrong)


def test_missing_parts_are_no_error() -> None:
    nothing = dict.fromkeys(("tool_calls", "observation", "extra", "timestamp", "model_name"))
    (trace,) = read(document(step(2, **nothing), extra={"lightstream": None}, final_metrics=None))
    assert responses(trace) == [[2]]
