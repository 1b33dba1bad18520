"""Calls and rewards of spans that the assembler never takes up are counted, in whatever way they are spelled."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from lightstream.schemas.records import SpanEventRecord, SpanRecord
from tests.store_views.log_file import LogFile
from tests.store_views.test_fates import fates
from tests.stream_processors.assembly.build import closed, framework_span, opened, proxy_span, reward_span, span_id

TOKENS = {"prompt_token_ids": [1, 2], "response_token_ids": [3]}


def told(number: int, response_id: str | None = None, **fields: Any) -> SpanRecord:
    """A call as Agent Lightning's tracer tells of it."""
    attributes = TOKENS | ({} if response_id is None else {"gen_ai.response.id": response_id})
    return framework_span(number, attributes, name="openai.chat.completion", **fields)


def anonymous(number: int, **fields: Any) -> SpanRecord:
    return framework_span(number, {"gen_ai.operation.name": "chat"}, **fields)


def homeless(span: SpanRecord) -> SpanRecord:
    return span.model_copy(update={"rollout_id": None, "attempt_id": None})


def lost(log: LogFile) -> Counter[tuple[Any, ...]]:
    return Counter(log.rows("SELECT right(span_id, 2), is_llm_call, reason FROM dropped WHERE derived"))


REWARDS = {
    "dimensions": reward_span(9, 1.0),
    "older": framework_span(9, {"reward": 1.0}, name="agentlightning.reward"),
    "structured": framework_span(9, {"agentlightning.reward": [{"name": "x", "value": 0.75}]}),
    "AgentOps": framework_span(9, {"agentops.task.output": json.dumps({"type": "reward", "value": 1.0})}),
    "evaluation": framework_span(
        9,
        events=[
            SpanEventRecord(name="gen_ai.evaluation.result", attributes={"gen_ai.evaluation.score.value": 1.0}),
        ],
    ),
}


@pytest.mark.parametrize("name", REWARDS)
def test_a_reward_that_is_in_no_trajectory_is_dropped(log: LogFile, name: str) -> None:
    reward = REWARDS[name]
    log.write_and_assemble(opened(), proxy_span(1), closed())
    log.write(reward, reward, homeless(framework_span(10, reward.attributes, name=reward.name, events=reward.events)))
    assert lost(log) == {("09", False, "late"): 1, ("0a", False, "no_rollout"): 1}
    assert log.rows("SELECT reason, count FROM funnel WHERE stage = 'rewards dropped' ORDER BY reason") == [
        ("late", 1),
        ("no_rollout", 1),
    ]


def test_what_is_in_a_revision_is_not_dropped(log: LogFile) -> None:
    log.write_and_assemble(opened(), proxy_span(1), closed())
    log.write_and_assemble(told(2, "x"), reward_span(9, 1.0), told(3, "resp-1"), anonymous(4))
    assert lost(log) == {}
    assert fates(log) == {("triplet", None): 2}


def test_calls_of_frameworks_that_no_trajectory_holds_are_dropped(log: LogFile) -> None:
    answers = {
        "openinference.span.kind": "LLM",
        "output.value": json.dumps({"id": "two", "choices": [{}, {"index": 1}]}),
    }
    log.write_and_assemble(homeless(told(1, "a")), told(2, "b", rollout_id="nobody"), told(3, "c"), opened(), closed())
    log.write(told(4), told(5, "d"), told(5, "d"), framework_span(6, answers), framework_span(7, {"some": "text"}))
    assert lost(log) == {
        ("01", True, "no_rollout"): 1,
        ("02", True, "no_rollout"): 1,
        ("03", True, "attempt_refused"): 1,
        ("04", True, "late"): 1,
        ("05", True, "late"): 1,
        ("06", True, "late"): 2,
    }
    assert fates(log) == {("dropped", "no_rollout"): 2, ("dropped", "attempt_refused"): 1, ("dropped", "late"): 4}
    assert log.rows("SELECT choice_index FROM llm_calls WHERE response_id = 'two' ORDER BY ALL") == [(0,), (1,)]


def test_a_call_that_the_proxy_recorded_is_not_counted_again(log: LogFile) -> None:
    """An SDK's spans without a rollout, and those that come too late, quote its response."""
    log.write_and_assemble(opened(), proxy_span(1), closed())
    log.write(homeless(told(2, "resp-1", trace_id="e" * 32)), told(3, "resp-1"), anonymous(4))
    assert lost(log) == {}
    assert fates(log) == {("triplet", None): 1}


def test_spans_that_tell_of_one_call_count_once(log: LogFile) -> None:
    """Those of one response; and a framework's span around it, which names no call."""
    outer, inner = anonymous(1), told(2, "x", parent=1)
    log.write(*(homeless(span) for span in (outer, inner, told(3, "x"))))
    assert lost(log) == {("02", True, "no_rollout"): 1}


def test_a_span_that_names_no_call_is_one_where_no_other_does(log: LogFile) -> None:
    log.write_and_assemble(opened(), closed())
    log.write(anonymous(1), homeless(anonymous(2, trace_id="e" * 32)))
    assert lost(log) == {("01", True, "late"): 1, ("02", True, "no_rollout"): 1}
    assert fates(log) == {("dropped", "late"): 1, ("dropped", "no_rollout"): 1}


def test_what_was_attached_is_that_of_its_rollout(log: LogFile) -> None:
    span, reward = told(1, "x"), reward_span(9, 1.0)
    log.write(homeless(span), homeless(reward))
    assert lost(log) == {("01", True, "no_rollout"): 1, ("09", False, "no_rollout"): 1}
    log.write_and_assemble(opened(), span, reward, closed())
    assert lost(log) == {}
    assert fates(log) == {("triplet", None): 1}


def test_records_of_the_proxy_are_not_read_again(log: LogFile) -> None:
    log.write(proxy_span(1), told(2, "x"), anonymous(3), reward_span(4, 1.0), framework_span(5))
    assert log.rows("SELECT span_id, read_calls, read_response_id, has_reward FROM spans_raw ORDER BY span_id") == [
        (span_id(1), None, None, False),
        (span_id(2), 1, "x", False),
        (span_id(3), 0, None, False),
        (span_id(4), None, None, True),
        (span_id(5), None, None, False),
    ]


def test_a_rollouts_calls_are_found_among_all(log: LogFile) -> None:
    for rollout_id in ("r1", "r2"):
        log.write_and_assemble(opened(rollout_id), closed(rollout_id))
        log.write(told(1, "x", rollout_id=rollout_id))
    assert log.rows("SELECT rollout_id, reason FROM llm_calls WHERE rollout_id = 'r2'") == [("r2", "late")]
