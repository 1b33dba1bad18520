"""Files of other tools are read as traces, or refused with what is wrong in them."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

from lightstream.schemas.errors import SettingsError
from lightstream.schemas.packing import unpack_int32
from lightstream.store_views.exports import conversations_of, to_atif
from lightstream.store_views.imports import check_score, read_traces
from lightstream.store_views.imports.trace import STORED_SECONDS_MAX, seconds
from lightstream.store_views.stores.times import SECONDS_MAX
from lightstream.stream_processors.adapters import TracerTraceToTriplet, TraceToMessages
from tests.store_views.exports.test_exports import asks, talk
from tests.store_views.log_file import LogFile

from .build import CALL, GENERATION, LANGFUSE, PHOENIX, calls, otlp, saved


def test_otlp_files_as_collectors_write_them(tmp_path: Path) -> None:
    first = otlp("1" * 32, CALL)
    second = otlp("1" * 32, {"spanId": "a" * 16, "name": "root"})
    other = otlp("2" * 32, {"spanId": "a" * 16, "name": "alone"})
    one, two = read_traces(saved(tmp_path / "spans.jsonl", first, second, other, lines=True))
    call, root = one.spans
    assert (call.name, call.parent_id, call.status.status_code, call.status.description) == (
        "openai.chat.completion",
        root.span_id,
        "ERROR",
        "no",
    )
    assert (call.start_time, call.end_time) == (1_700_000_000.0, 1_700_000_001.5)
    assert call.attributes["nested"] == {"on": True}
    assert (call.attributes["score"], call.attributes["bad"]) == (0.5, "many")
    assert call.resource.attributes == {"service.name": "agent"}
    assert (call.events[0].name, call.links[0].context.span_id) == ("said", "d" * 16)
    assert [(t.prompt["token_ids"], t.response["token_ids"]) for t in calls(one)] == [([1, 2], [3])]
    assert [span.name for span in two.spans] == ["alone"]


AGENT = {"id": "agent-1", "traceId": "t-1", "type": "AGENT", "name": "planner", "startTime": "2026-01-01T00:00:00Z"}


def test_a_langfuse_trace_with_scores(tmp_path: Path) -> None:
    scores: list[dict[str, Any]] = [
        {"name": "right", "value": 0.25, "observationId": GENERATION["id"]},
        {"name": "toxicity", "value": 0.9, "observationId": AGENT["id"]},
        {"name": "right", "value": 1},
        {"name": "style", "value": 0.5},
        {"name": "comment", "value": "fine"},
    ]
    document = {"id": "t-1", "input": {"q": 1}, "observations": [GENERATION, AGENT], "scores": scores}
    path = saved(tmp_path / "trace.json", document)
    with pytest.raises(SettingsError, match=r"right.*style"):
        read_traces(path)
    (trace,) = read_traces(path, score="right")
    assert trace.task == {"q": 1}
    (line,) = TraceToMessages().adapt(trace.spans)
    assert line["messages"] == [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yo"}]
    triplets = TracerTraceToTriplet(llm_call_match="^answer$").adapt(trace.spans)
    assert [(t.metadata["agent_name"], t.reward) for t in triplets] == [("planner", 0.25)]
    rewards = [s for s in trace.spans if s.name == "agentlightning.annotation"]
    assert [s.attributes["agentlightning.reward.0.name"] for s in rewards] == ["right", "right"]


def test_a_score_that_was_not_named_is_no_reward(tmp_path: Path) -> None:
    """The named one is missing and stays so; without a name the only one is the reward."""
    document = {"id": "t-1", "observations": [GENERATION], "scores": [{"name": "toxicity", "value": 0.9}]}
    path = saved(tmp_path / "trace.json", document)
    for score, rewards in (("correctness", []), (None, [0.9])):
        (trace,) = read_traces(path, score=score)
        values = [s.attributes.get("agentlightning.reward.0.value") for s in trace.spans]
        assert [value for value in values if value is not None] == rewards


def test_a_score_that_no_trace_has_is_told_of(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    traces = [
        {"id": f"t-{number}", "observations": [GENERATION], "scores": [{"name": name, "value": 1}]}
        for number, name in enumerate(("right", "short"))
    ]
    path.write_text(json.dumps(traces))
    read = read_traces(path, score="short")
    check_score(read, "short")
    check_score(read, None)
    with pytest.raises(SettingsError, match=r"no trace has a score named 'rihgt'; there are \['right', 'short'\]"):
        check_score(read, "rihgt")


def test_langfuse_calls_come_in_the_order_of_their_ends(tmp_path: Path) -> None:
    """As times, not as texts: a time with a fraction of a second is written longer."""
    ends = {"third": "2026-01-01T00:00:00.500Z", "first": "2026-01-01T00:59:59+01:00", "second": "2026-01-01T00:00:00Z"}
    rows = [GENERATION | {"id": name, "name": name, "endTime": end} for name, end in ends.items()]
    (trace,) = read_traces(saved(tmp_path / "trace.json", {"id": "t-1", "observations": rows}))
    assert [span.name for span in trace.spans] == ["first", "second", "third"]


def test_rows_of_langfuse_observations(tmp_path: Path) -> None:
    snake = {"id": "x", "trace_id": "t-2", "type": "SPAN", "start_time": "2026-01-01 00:00:00.123", "level": "ERROR"}
    one, two = read_traces(saved(tmp_path / "rows.jsonl", GENERATION, snake, AGENT, lines=True))
    assert {len(one.spans), len(two.spans)} == {1, 2}
    failed = next(s for trace in (one, two) for s in trace.spans if s.status.status_code == "ERROR")
    assert failed.start_time == 1_767_225_600.123


@pytest.mark.parametrize("flat", [False, True])
def test_phoenix_spans_and_rows_of_its_data_frame(tmp_path: Path, flat: bool) -> None:
    messages = [{"message.role": "user", "message.content": "Hi"}]
    answer = json.dumps({"prompt_token_ids": [1], "choices": [{"token_ids": [2]}]})
    row: dict[str, Any] = {"name": "ChatCompletion", "span_kind": "LLM", "parent_id": None, "status_code": "OK"}
    row |= {"start_time": "2026-01-01T00:00:00+00:00", "end_time": 1_767_225_601_000}
    if flat:
        row |= {"context.trace_id": "e" * 32, "context.span_id": "f" * 16, "attributes.output.value": answer}
        row |= {"attributes.llm.input_messages": messages}
    else:
        row |= {"context": {"trace_id": "e" * 32, "span_id": "f" * 16}}
        row |= {"attributes": {"output.value": answer, "llm": {"input_messages": messages}}}
    (trace,) = read_traces(saved(tmp_path / "spans.json", {"data": [row]}))
    (call,) = calls(trace)
    assert (call.prompt["token_ids"], call.prompt["raw_content"]) == ([1], [{"role": "user", "content": "Hi"}])
    assert trace.spans[0].end_time == 1_767_225_601.0


def test_what_was_exported_as_atif_comes_back(log: LogFile, tmp_path: Path) -> None:
    trajectory = talk(log)
    document = to_atif(trajectory, conversations_of(asks(log), trajectory))
    (trace,) = read_traces(saved(tmp_path / "trajectories.jsonl", document, lines=True))
    triplets = calls(trace)
    assert [t.prompt["token_ids"] for t in triplets] == [
        list(unpack_int32(t.prompt_token_ids)) for t in trajectory.triplets
    ]
    assert triplets[-1].reward == trajectory.reward
    assert triplets[-1].response["logprobs"] == [{"logprob": -0.5}]
    conversation = TraceToMessages().adapt(trace.spans)[-1]
    assert [message["role"] for message in conversation["messages"]] == [
        "system",
        "user",
        "assistant",
        "tool",
        "assistant",
    ]


@pytest.mark.parametrize("text", ["", "{", '{"a": 1}', '{"resourceSpans": []}\nnot json', "[1]"])
def test_a_file_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "file.json"
    path.write_text(text)
    with pytest.raises(SettingsError, match="file"):
        read_traces(path)
    with pytest.raises(SettingsError, match="cannot be read"):
        read_traces(tmp_path / "nowhere")


def test_strings_may_hold_what_ends_a_line_elsewhere(tmp_path: Path) -> None:
    call = CALL | {"name": "a\u2028b\x85c"}
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(json.dumps(otlp(n * 32, call), ensure_ascii=False) for n in "12"), encoding="utf-8")
    assert [trace.spans[0].name for trace in read_traces(path)] == [call["name"]] * 2


def test_scores_of_the_only_root_are_of_the_whole_trace(tmp_path: Path) -> None:
    def links(*scores: dict[str, Any], rows: list[dict[str, Any]]) -> list[Any]:
        (trace,) = read_traces(saved(tmp_path / "t.json", {"id": "t-1", "observations": rows, "scores": scores}))
        rewards = [s.attributes for s in trace.spans if s.name == "agentlightning.annotation"]
        return [(s["agentlightning.reward.0.value"], "agentlightning.link.0.value_match" in s) for s in rewards]

    of_root = {"name": "right", "value": 0.5, "observationId": AGENT["id"]}
    rows: list[dict[str, Any]] = [AGENT, GENERATION]
    assert links(of_root, rows=rows) == [(0.5, False)]
    assert links({"name": "right", "value": 1}, of_root, rows=rows) == [(1.0, False)], "the trace's own counts"
    other = {"id": "agent-2", "traceId": "t-1", "type": "AGENT", "name": "other"}
    assert links(of_root, rows=[*rows, other]) == [(0.5, True)], "which root it is of is for the assembler"


def test_times_that_no_store_takes_are_missing() -> None:
    assert STORED_SECONDS_MAX == SECONDS_MAX
    taken: list[object] = [SECONDS_MAX, "1700-01-01T00:00:00Z", "2250-01-01", SECONDS_MAX * 1e9]
    assert None not in map(seconds, taken)
    not_taken: list[object] = ["0001-01-01T00:00:00Z", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59Z"]
    not_taken += [9e10, -1e10, -(10**400), 10**400, "9" * 400, 1e999]
    assert [seconds(value) for value in not_taken] == [None] * len(not_taken)


@pytest.mark.parametrize(
    ("good", "wrong", "told"),
    [
        (PHOENIX, PHOENIX | {"attributes": "text"}, "'attributes' of the row is not an object: 'text'"),
        (PHOENIX, PHOENIX | {"attributes": "[1]"}, "'attributes' of the row is not an object"),
        (PHOENIX, PHOENIX | {"attributes": 5}, "'attributes' of the row is not an object: 5"),
        (PHOENIX, PHOENIX | {"context": {"trace_id": "e" * 32}}, "'context' has no 'span_id'"),
        (PHOENIX, PHOENIX | {"context": {"span_id": "f" * 16}}, "'context' has no 'trace_id'"),
        (PHOENIX, {"name": "x", "context.trace_id": "e" * 32}, "the row has no 'context.span_id'"),
        (PHOENIX, {"context": "text", "context.trace_id": "e" * 32}, "'context' of the row is not an object"),
        (LANGFUSE, LANGFUSE | {"scores": 5}, "'scores' of the document is not a list: 5"),
        (LANGFUSE, LANGFUSE | {"scores": ["score-1"]}, "item 1 of 'scores' of the document is not an object"),
        (LANGFUSE, LANGFUSE | {"observations": ["o-1"]}, "item 1 of 'observations' of the document is not an object"),
        (LANGFUSE, LANGFUSE | {"trace": "t-1"}, "'trace' of the document is not an object"),
        (LANGFUSE, {"observations": [GENERATION]}, "the trace has no 'id'"),
        (LANGFUSE, {"id": "t-1", "observations": [{"type": "SPAN"}]}, "the observation has no 'id'"),
        (GENERATION, {"traceId": "t-1", "type": "SPAN"}, "the observation has no 'id'"),
    ],
)
def test_parts_that_are_missing_or_of_another_type_are_refused(
    tmp_path: Path, good: dict[str, Any], wrong: dict[str, Any], told: str
) -> None:
    path = saved(tmp_path / "rows.jsonl", good, wrong, lines=True)
    with pytest.raises(SettingsError, match=f"document 2 of .*rows.jsonl: {re.escape(told)}"):
        read_traces(path)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"resourceSpans": 5}, "'resourceSpans' of the document is not a list: 5"),
        ({"resourceSpans": [{"resource": "text"}]}, "'resource' of 'resourceSpans' is not an object: 'text'"),
        ({"resourceSpans": [{"scopeSpans": {}}]}, "'scopeSpans' of 'resourceSpans' is not a list"),
        ({"resourceSpans": [{"scopeSpans": [{"spans": ["text"]}]}]}, "item 1 of 'spans' of 'scopeSpans' is not an"),
        (otlp("1" * 32, CALL, CALL | {"status": "OK"}), "'status' of span 2 is not an object: 'OK'"),
        (otlp("1" * 32, CALL | {"attributes": {"a": 1}}), "'attributes' of span 1 is not a list"),
        (otlp("1" * 32, CALL | {"events": ["text"]}), "item 1 of 'events' of span 1 is not an object"),
        (otlp("1" * 32, CALL | {"links": "text"}), "'links' of span 1 is not a list"),
    ],
)
def test_otlp_of_another_type_is_refused(tmp_path: Path, wrong: dict[str, Any], told: str) -> None:
    path = saved(tmp_path / "spans.jsonl", otlp("1" * 32, CALL), wrong, lines=True)
    with pytest.raises(SettingsError, match=f"document 2 of .*spans.jsonl: {re.escape(told)}"):
        read_traces(path)


def test_values_that_are_not_of_their_kind_stay_as_they_are(tmp_path: Path) -> None:
    values: dict[str, tuple[Any, Any]] = {
        "infinite": ({"intValue": 1e999}, math.inf),
        "long": ({"doubleValue": 10**400}, 10**400),
        "bare": ("text", "text"),
        "empty": ({}, None),
        "no list": ({"arrayValue": 5}, 5),
        "bare items": ({"arrayValue": {"values": [1, {"intValue": "2"}]}}, [1, 2]),
        "no pairs": ({"kvlistValue": {"values": [1]}}, {"values": [1]}),
        "nothing": ({"arrayValue": {}}, []),
    }
    call = CALL | {"attributes": [{"key": key, "value": value} for key, (value, _) in values.items()]}
    (trace,) = read_traces(saved(tmp_path / "a.json", otlp("1" * 32, call)))
    expected = {key: value for key, (_, value) in values.items() if value is not None}
    assert trace.spans[0].attributes == expected


def test_phoenix_attributes_may_be_json_text(tmp_path: Path) -> None:
    row = PHOENIX | {"attributes": json.dumps({"llm": {"model_name": "cut \ud83d"}})}
    (trace,) = read_traces(saved(tmp_path / "rows.json", row))
    assert trace.spans[0].attributes == {"llm.model_name": "cut ?"}


def test_a_score_may_be_too_large_for_a_float(tmp_path: Path) -> None:
    document = LANGFUSE | {"scores": [{"name": "right", "value": 10**400}]}
    (trace,) = read_traces(saved(tmp_path / "a.json", document))
    assert trace.spans[-1].attributes["agentlightning.reward.0.value"] == math.inf


@pytest.mark.parametrize(
    "document", [LANGFUSE, PHOENIX, otlp("1" * 32, CALL), {"schema_version": "ATIF-v1.7", "steps": []}]
)
def test_documents_are_read_or_refused_however_deep(tmp_path: Path, document: dict[str, Any]) -> None:
    """Parsers and encoders of JSON give up at depths that depend on who calls them."""
    path = tmp_path / "a.json"
    at_each: list[bool] = []
    for depth in range(800, 1000):
        part = "[" * depth + "]" * depth
        text = json.dumps(document | {"input": "PART", "extra": {"lightstream": {"input": "PART"}}})
        path.write_text(text.replace('"PART"', part))
        try:
            at_each.append(bool(read_traces(path)))
        except SettingsError:
            at_each.append(False)
    assert at_each[0]
