"""Records for assembler tests, with defaults that make a good call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lightstream.schemas.packing import pack_float32, pack_int32
from lightstream.schemas.records import (
    AttemptClosed,
    AttemptOpened,
    AttemptStatus,
    LlmCall,
    RolloutSpec,
    RolloutStatus,
    SpanRecord,
    Trajectory,
)
from lightstream.stream_processors.core.assembly import Assembler, AssemblyRules

ROLLOUT = "r1"
TRACE = "0" * 31 + "1"


def span_id(number: int) -> str:
    """16 hex digits."""
    return f"{number:016x}"


def opened(rollout_id: str = ROLLOUT, attempt: int = 1, **spec: Any) -> AttemptOpened:
    """An opening record; its attempt is ``<rollout>-a<attempt>``."""
    return AttemptOpened(
        rollout=RolloutSpec(rollout_id=rollout_id, **spec),
        attempt_id=f"{rollout_id}-a{attempt}",
        attempt_sequence=attempt,
        opened_unix_nano=1_000,
    )


def closed(rollout_id: str = ROLLOUT, attempt: int = 1, *, final: bool = True) -> AttemptClosed:
    """A closing record of a succeeded attempt, or of a failed one that is retried."""
    return AttemptClosed(
        rollout_id=rollout_id,
        attempt_id=f"{rollout_id}-a{attempt}",
        attempt_sequence=attempt,
        status=AttemptStatus.SUCCEEDED if final else AttemptStatus.FAILED,
        rollout_status=RolloutStatus.SUCCEEDED if final else RolloutStatus.REQUEUING,
        final=final,
        closed_unix_nano=9_000,
    )


def proxy_span(
    number: int,
    prompt: Sequence[int] = (1, 2, 3),
    response: Sequence[int] = (4, 5),
    *,
    rollout_id: str = ROLLOUT,
    attempt: int = 1,
    parent: int | None = None,
    attributes: dict[str, Any] | None = None,
    trace_id: str = TRACE,
    **call: Any,
) -> SpanRecord:
    """A call as the proxy records it; ``call`` overrides fields of its ``llm_call``."""
    fields: dict[str, Any] = {
        "response_id": f"resp-{number}",
        "response_model": "policy@3",
        "prompt_token_ids": pack_int32(prompt),
        "response_token_ids": pack_int32(response),
        "response_logprobs": pack_float32([-0.5] * len(response)),
        "http_status": 200,
        "finish_reason": "stop",
    }
    return SpanRecord(
        rollout_id=rollout_id,
        attempt_id=f"{rollout_id}-a{attempt}",
        trace_id=trace_id,
        span_id=span_id(number),
        parent_id=None if parent is None else span_id(parent),
        name="chat.completion",
        start_unix_nano=number * 10 + 1,
        end_unix_nano=number * 10 + 5,
        attributes=attributes or {},
        llm_call=LlmCall(**(fields | call)),
    )


def framework_span(
    number: int,
    attributes: dict[str, Any] | None = None,
    *,
    name: str = "step",
    rollout_id: str = ROLLOUT,
    attempt: int = 1,
    parent: int | None = None,
    trace_id: str = TRACE,
    **fields: Any,
) -> SpanRecord:
    """A span of the agent's side, without ``llm_call``."""
    times: dict[str, Any] = {"start_unix_nano": number * 10 + 1, "end_unix_nano": number * 10 + 5}
    return SpanRecord(
        rollout_id=rollout_id,
        attempt_id=f"{rollout_id}-a{attempt}",
        trace_id=trace_id,
        span_id=span_id(number),
        parent_id=None if parent is None else span_id(parent),
        name=name,
        attributes=attributes or {},
        **(times | fields),
    )


def reward_span(number: int, value: Any, *, link: dict[str, str] | None = None, **fields: Any) -> SpanRecord:
    """A reward as ``emit_reward`` makes it; a dict has several dimensions, the first is the reward."""
    values = value if isinstance(value, dict) else {"primary": value}
    attributes: dict[str, Any] = {}
    for index, (name, number_) in enumerate(values.items()):
        attributes[f"agentlightning.reward.{index}.name"] = name
        attributes[f"agentlightning.reward.{index}.value"] = number_
    for index, (key, target) in enumerate((link or {}).items()):
        attributes[f"agentlightning.link.{index}.key_match"] = key
        attributes[f"agentlightning.link.{index}.value_match"] = target
    return framework_span(number, attributes, name="agentlightning.annotation", **fields)


def assemble(*spans: SpanRecord, rules: AssemblyRules | None = None, final: bool = True, **spec: Any) -> Trajectory:
    """The trajectory of one attempt with these spans, at offsets 1, 2, ….; opened at 0."""
    assembler = Assembler(partition=0, rules=rules)
    records: list[SpanRecord | AttemptOpened | AttemptClosed] = [opened(**spec), *spans, closed(final=final)]
    (trajectory,) = assembler.on_records((record, offset) for offset, record in enumerate(records))
    assert assembler.low_water(len(records)) == len(records)
    assert trajectory.call_count == len(trajectory.triplets) + sum(d.is_llm_call for d in trajectory.drops)
    return trajectory
