"""Rewards as any OpenTelemetry SDK says them, through the gateway's decoder, for an agent that never used our proxy."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lightstream.producers.otlp.decode import json as otlp
from lightstream.schemas.records import NoteReason, SpanRecord
from tests.store_views.log_file import LogFile
from tests.stream_processors.assembly.build import closed, opened

TRACE, AGENT, CALL, OTHER = "a" * 32, "1" * 16, "2" * 16, "3" * 16
TIMES = {"startTimeUnixNano": "1790000000000000000", "endTimeUnixNano": "1790000001000000000"}
RESULT = "gen_ai.evaluation.result"


def attributes(values: dict[str, Any]) -> list[dict[str, Any]]:
    def value(item: Any) -> dict[str, Any]:
        kind = {str: "stringValue", float: "doubleValue", int: "intValue"}[type(item)]
        return {kind: str(item) if kind == "intValue" else item}

    return [{"key": key, "value": value(item)} for key, item in values.items()]


def span(span_id: str, at: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"traceId": TRACE, "spanId": span_id, "name": "s", **TIMES, "attributes": attributes(at), **fields}


def score(value: float | None = 1.0, **more: str) -> dict[str, Any]:
    found = {} if value is None else {"gen_ai.evaluation.score.value": value}
    return {"gen_ai.evaluation.name": "right"} | found | {key.replace("__", "."): text for key, text in more.items()}


def event(at: dict[str, Any]) -> dict[str, Any]:
    return {"name": RESULT, "timeUnixNano": TIMES["endTimeUnixNano"], "attributes": attributes(at)}


def chat(span_id: str, response: str, *events: dict[str, Any], **more: Any) -> dict[str, Any]:
    at = {
        "gen_ai.operation.name": "chat",
        "gen_ai.response.id": response,
        "gen_ai.response.model": "gpt-4o-mini-2024-07-18",
        "gen_ai.usage.input_tokens": 7,
        "gen_ai.usage.output_tokens": 3,
    }
    return span(span_id, at | more, parentSpanId=AGENT, events=list(events))


def sent(log: LogFile, spans: list[dict[str, Any]], logs: list[dict[str, Any]] | None = None) -> list[SpanRecord]:
    """As the gateway takes them, under a resource that names the rollout."""
    resource = {"attributes": attributes({"lightstream.rollout_id": "r1", "lightstream.attempt_id": "r1-a1"})}
    traces = {"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": spans}]}]}
    records = otlp.decode_traces(json.dumps(traces).encode()).records
    if logs:
        body = {"resourceLogs": [{"resource": resource, "scopeLogs": [{"logRecords": logs}]}]}
        records += otlp.decode_logs(json.dumps(body).encode()).records
    log.write_and_assemble(opened(), *records, closed())
    return records


ROOT = span(AGENT, {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "planner"})
TWO = [ROOT, chat(CALL, "resp-1"), chat(OTHER, "resp-2")]
OF_FIRST = {"agentlightning.reward.0.name": "right", "agentlightning.reward.0.value": 1.0}


def linked(key: str, value: str) -> dict[str, Any]:
    return OF_FIRST | {"agentlightning.link.0.key_match": key, "agentlightning.link.0.value_match": value}


BY_CALL: dict[str, tuple[list[dict[str, Any]], list[dict[str, Any]]]] = {
    "an event on the call": ([ROOT, chat(CALL, "resp-1", event(score())), chat(OTHER, "resp-2")], []),
    "an event elsewhere that names the response": (
        [*TWO, span("4" * 16, {}, events=[event(score(gen_ai__response__id="resp-1"))])],
        [],
    ),
    "a log record that names the response": (
        TWO,
        [{"traceId": TRACE, "eventName": RESULT, "attributes": attributes(score(gen_ai__response__id="resp-1"))}],
    ),
    "a log record of the call's span": (
        TWO,
        [{"traceId": TRACE, "spanId": CALL, "eventName": RESULT, "attributes": attributes(score())}],
    ),
    "a span of that name below the call": ([*TWO, span("4" * 16, score(), name=RESULT, parentSpanId=CALL)], []),
    "attributes on a span with a link to the response": (
        [*TWO, span("4" * 16, linked("gen_ai.response.id", "resp-1"))],
        [],
    ),
    "attributes with a link to the span": ([*TWO, span("4" * 16, linked("span_id", CALL))], []),
    "attributes with OpenTelemetry's link": (
        [*TWO, span("4" * 16, OF_FIRST, links=[{"traceId": TRACE, "spanId": CALL}])],
        [],
    ),
}


@pytest.mark.parametrize("case", BY_CALL)
def test_a_reward_of_a_call_is_in_sql_with_its_agent_model_and_tokens(case: str, log: LogFile) -> None:
    sent(log, *BY_CALL[case])
    assert log.rows("SELECT name, value, match, call_index, agent_name, model FROM rewards") == [
        ("right", 1.0, "link", 0, "planner", "gpt-4o-mini")
    ]
    assert log.rows(
        "SELECT response_id, reward, agent_name, model, prompt_token_count, response_token_count "
        "FROM llm_calls ORDER BY response_id"
    ) == [
        ("resp-1", 1.0, "planner", "gpt-4o-mini", 7, 3),
        ("resp-2", None, "planner", "gpt-4o-mini", 7, 3),
    ]
    assert log.rows("SELECT reward, agent_name, model FROM trajectories") == [(1.0, "planner", "gpt-4o-mini")]


WHOLE: dict[str, tuple[list[dict[str, Any]], list[dict[str, Any]]]] = {
    "attributes without a link": ([*TWO, span("4" * 16, OF_FIRST)], []),
    "an event on the agent's span": ([span(AGENT, {}, events=[event(score())]), *TWO[1:]], []),
    "a log record of no span": (TWO, [{"traceId": TRACE, "eventName": RESULT, "attributes": attributes(score())}]),
}


@pytest.mark.parametrize("case", WHOLE)
def test_a_reward_of_the_trajectory(case: str, log: LogFile) -> None:
    sent(log, *WHOLE[case])
    assert log.rows("SELECT value, match, call_index FROM rewards") == [(1.0, "trajectory", None)]
    assert log.rows("SELECT reward FROM trajectories") == [(1.0,)]


def test_a_label_alone_is_no_reward(log: LogFile) -> None:
    label = event(score(None, gen_ai__evaluation__score__label="good"))
    sent(log, [ROOT, chat(CALL, "resp-1", label)])
    assert log.rows("FROM rewards") == []


def test_rewards_of_calls_that_never_came_are_kept_and_named(log: LogFile) -> None:
    gone = [event(score(gen_ai__response__id="resp-8")), event(score(0.5, gen_ai__response__id="resp-9"))]
    sent(log, [*TWO, span("4" * 16, {}, events=gone)])
    assert log.rows("SELECT value, match, call_index, link FROM rewards ORDER BY value DESC") == [
        (1.0, "none", None, "gen_ai.response.id=resp-8"),
        (0.5, "none", None, "gen_ai.response.id=resp-9"),
    ]
    assert log.rows("SELECT reward FROM trajectories") == [(None,)]
    (notes,) = log.rows("SELECT notes FROM trajectories")[0]
    assert [(note["reason"], note["count"]) for note in notes] == [(NoteReason.UNMATCHED_LINK.value, 2)]
    assert "resp-8" in notes[0]["detail"]
