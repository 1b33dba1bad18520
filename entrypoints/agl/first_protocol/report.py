"""Between an agent's report of a task and the spans that are kept of it. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError

from lightstream.schemas.attribute_names import (
    AGL_LINK,
    AGL_REWARD,
    PROMPT_TOKEN_IDS,
    RESPONSE_LOGPROBS,
    RESPONSE_TOKEN_IDS,
)
from lightstream.schemas.types import (
    Attributes,
    Event,
    Link,
    OtelResource,
    Span,
    SpanContext,
    TraceStatus,
    Triplet,
)
from lightstream.store_views.stores.kafka.span_record import span_record
from lightstream.stream_processors.core.rewards import read_rewards

from .messages import RolloutLegacy

__all__ = ["final_reward_in", "report_in", "spans_of"]

REPORT = "agentlightning.rollout"
"""Name of the span that carries the whole report, as JSON, in the attribute of the same name."""

TRIPLET = "agentlightning.triplet"
RESPONSE_ID = "gen_ai.response.id"


def spans_of(report: RolloutLegacy, attempt_id: str) -> tuple[list[Span], int]:
    """Its calls, each with its reward; the reward of the whole; at last the report itself. Numbered from 1.

    Ids follow from the attempt and the place, so that a report sent twice is kept once. With triplets the trace tells
    of the same calls again: it stays in the report alone. Also returns how many entries of the trace are not spans.
    """
    spans: list[Span] = []
    unreadable = 0

    def add(name: str, attributes: Attributes) -> str:
        number = len(spans) + 1
        digest = hashlib.sha256(f"{attempt_id}\0{number}".encode("utf-8", "backslashreplace")).hexdigest()
        own = digest[32:48]
        spans.append(
            Span.from_attributes(
                attributes=attributes,
                rollout_id=report.rollout_id,
                attempt_id=attempt_id,
                sequence_id=number,
                name=name,
                trace_id=hashlib.sha256(attempt_id.encode("utf-8", "backslashreplace")).hexdigest()[:32],
                span_id=own,
            )
        )
        return own

    for triplet in report.triplets or ():
        span_id = add(TRIPLET, _attributes_of(triplet))
        if triplet.reward is not None:
            add(
                AGL_REWARD,
                _reward(triplet.reward) | {f"{AGL_LINK}.0.key_match": "span_id", f"{AGL_LINK}.0.value_match": span_id},
            )
    for entry in () if report.triplets else report.trace or ():
        span = _span_of_json(entry, report.rollout_id, attempt_id, len(spans) + 1)
        if span is None:
            unreadable += 1
        else:
            spans.append(span)
    if report.final_reward is not None:
        add(AGL_REWARD, _reward(report.final_reward))
    add(REPORT, {REPORT: report.model_dump_json()})
    return spans, unreadable


def report_in(spans: Iterable[Span]) -> RolloutLegacy | None:
    """The report that :func:`spans_of` put among the spans, or ``None``."""
    for span in spans:
        if span.name == REPORT and isinstance(span.attributes.get(REPORT), str):
            try:
                return RolloutLegacy.model_validate_json(span.attributes[REPORT])
            except ValidationError:
                return None
    return None


def final_reward_in(spans: Iterable[Span]) -> float | None:
    """The last reward among the spans that is for no call alone, or ``None``."""
    rewards = [reading for span in spans for reading in read_rewards(span_record(span), 0) if not reading.links]
    numbers = [value for reading in rewards for dimension, _, value in reading.dimensions if dimension == 0]
    return numbers[-1] if numbers else None


def _attributes_of(triplet: Triplet) -> Attributes:
    prompt, response = triplet.prompt, triplet.response
    attributes: Attributes = {"gen_ai.operation.name": "chat"}  # without token ids it is still a call, and told so
    if isinstance(prompt, dict) and prompt.get("token_ids") is not None:
        attributes[PROMPT_TOKEN_IDS] = prompt["token_ids"]
    if isinstance(response, dict) and response.get("token_ids") is not None:
        attributes[RESPONSE_TOKEN_IDS] = response["token_ids"]
        if response.get("logprobs"):
            attributes[RESPONSE_LOGPROBS] = _json(response["logprobs"])
    if isinstance(triplet.metadata.get("response_id"), str):
        attributes[RESPONSE_ID] = triplet.metadata["response_id"]
    return attributes


def _reward(value: float) -> Attributes:
    return {f"{AGL_REWARD}.0.name": "primary", f"{AGL_REWARD}.0.value": value}


def _json(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _span_of_json(entry: Mapping[str, Any], rollout_id: str, attempt_id: str, sequence_id: int) -> Span | None:
    """Read a span as ``ReadableSpan.to_json()`` or ``Span.model_dump()`` writes it; ``None`` where it is not one."""
    place = {"rollout_id": rollout_id, "attempt_id": attempt_id, "sequence_id": sequence_id}
    try:
        if "trace_id" in entry:
            return Span.model_validate({**entry, **place})
        context = _context(entry["context"])
        parent_id = None if entry.get("parent_id") is None else _hex(entry["parent_id"])
        resource = entry.get("resource") or {}
        return Span(
            rollout_id=rollout_id,
            attempt_id=attempt_id,
            sequence_id=sequence_id,
            trace_id=context.trace_id,
            span_id=context.span_id,
            parent_id=parent_id,
            name=entry["name"],
            status=TraceStatus.model_validate(entry.get("status") or {"status_code": "UNSET"}),
            attributes=dict(entry.get("attributes") or {}),
            events=[
                Event(name=event["name"], attributes=event.get("attributes") or {}, timestamp=_time(event["timestamp"]))
                for event in entry.get("events") or ()
            ],
            links=[
                Link(context=_context(link["context"]), attributes=link.get("attributes") or None)
                for link in entry.get("links") or ()
            ],
            start_time=_time(entry.get("start_time")),
            end_time=_time(entry.get("end_time")),
            context=context,
            parent=None if parent_id is None else _local(context.trace_id, parent_id),
            resource=OtelResource(
                attributes=resource.get("attributes") or {}, schema_url=resource.get("schema_url") or ""
            ),
        )
    except (ValidationError, ValueError, KeyError, TypeError, AttributeError, OverflowError):
        return None


def _context(entry: Mapping[str, Any]) -> SpanContext:
    return _local(_hex(entry["trace_id"]), _hex(entry["span_id"]))


def _local(trace_id: str, span_id: str) -> SpanContext:
    return SpanContext(trace_id=trace_id, span_id=span_id, is_remote=False, trace_state={})


def _hex(text: str) -> str:
    """An id without the ``0x`` that the SDK writes before it."""
    digits = text.removeprefix("0x").lower()
    int(digits, 16)
    return digits


def _time(text: str | None) -> float | None:
    if text is None:
        return None
    moment = datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
