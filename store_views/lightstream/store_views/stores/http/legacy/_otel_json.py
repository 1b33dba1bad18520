"""Spans as ``ReadableSpan.to_json()`` writes them, or a :class:`Span` itself does (``model_dump``)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError

from lightstream.schemas.types import Event, Link, OtelResource, Span, SpanContext, TraceStatus

__all__ = ["span_of_json"]


def span_of_json(said: Mapping[str, Any], rollout_id: str, attempt_id: str, sequence_id: int) -> Span | None:
    """The span, or ``None`` where this is not one."""
    place = {"rollout_id": rollout_id, "attempt_id": attempt_id, "sequence_id": sequence_id}
    try:
        if "trace_id" in said:
            return Span.model_validate({**said, **place})
        context = _context(said["context"])
        parent_id = None if said.get("parent_id") is None else _hex(said["parent_id"])
        resource = said.get("resource") or {}
        return Span(
            rollout_id=rollout_id,
            attempt_id=attempt_id,
            sequence_id=sequence_id,
            trace_id=context.trace_id,
            span_id=context.span_id,
            parent_id=parent_id,
            name=said["name"],
            status=TraceStatus.model_validate(said.get("status") or {"status_code": "UNSET"}),
            attributes=dict(said.get("attributes") or {}),
            events=[
                Event(name=event["name"], attributes=event.get("attributes") or {}, timestamp=_time(event["timestamp"]))
                for event in said.get("events") or ()
            ],
            links=[
                Link(context=_context(link["context"]), attributes=link.get("attributes") or None)
                for link in said.get("links") or ()
            ],
            start_time=_time(said.get("start_time")),
            end_time=_time(said.get("end_time")),
            context=context,
            parent=None if parent_id is None else _local(context.trace_id, parent_id),
            resource=OtelResource(
                attributes=resource.get("attributes") or {}, schema_url=resource.get("schema_url") or ""
            ),
        )
    except (ValidationError, ValueError, KeyError, TypeError, AttributeError, OverflowError):
        return None


def _context(said: Mapping[str, Any]) -> SpanContext:
    return _local(_hex(said["trace_id"]), _hex(said["span_id"]))


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
