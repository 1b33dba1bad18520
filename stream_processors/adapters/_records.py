"""From spans as stores give them to the records that the core reads."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from lightstream.runtime.clock import NANOS_PER_SECOND
from lightstream.schemas.codec.convert import constructed
from lightstream.schemas.llm_attributes import call_of_attributes
from lightstream.schemas.records import SpanEventRecord, SpanLinkRecord, SpanRecord, SpanStatus
from lightstream.schemas.types import Span, SpanLike

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

NO_ATTEMPT = "dummy"
"""Rollout and attempt of a span that is adapted straight from the SDK."""

_STATUSES = {"UNSET": SpanStatus.UNSET, "OK": SpanStatus.OK, "ERROR": SpanStatus.ERROR}


def spans_of(source: Iterable[SpanLike]) -> list[Span]:
    """The spans; spans of the OpenTelemetry SDK are converted."""
    return [span if isinstance(span, Span) else _from_sdk(span) for span in source]


def _from_sdk(span: ReadableSpan) -> Span:
    return Span.from_opentelemetry(span, NO_ATTEMPT, NO_ATTEMPT, 0)


def in_log_order(spans: Sequence[Span]) -> list[int]:
    """Positions of ``spans`` in log order.

    That is by ``sequence_id`` where every span has one (0 is none, but for a single first), else as they are given:
    stores give them in the order of the log, and tracers in the order in which they ended. Times decide nothing.
    """
    positions = list(range(len(spans)))
    if sum(span.sequence_id == 0 for span in spans) > 1:
        return positions
    return sorted(positions, key=lambda position: spans[position].sequence_id)


def record_of(span: Span, trace_id: str | None = None) -> SpanRecord:
    """The record of a span; a time that is missing or no number becomes 0, "none". ``span`` is unchanged.

    A recorded call (the proxy's) that a store keeps in attributes becomes the record's ``llm_call`` again.
    """
    return constructed(
        SpanRecord,
        {
            "rollout_id": span.rollout_id,
            "attempt_id": span.attempt_id,
            "sequence_id": span.sequence_id,
            "trace_id": span.trace_id if trace_id is None else trace_id,
            "span_id": span.span_id,
            "parent_id": span.parent_id,
            "name": span.name,
            "status": _STATUSES[span.status.status_code],
            "status_message": span.status.description or "",
            "start_unix_nano": _nanos(span.start_time),
            "end_unix_nano": _nanos(span.end_time),
            "attributes": span.attributes,
            "events": [
                SpanEventRecord(name=event.name, time_unix_nano=_nanos(event.timestamp), attributes=event.attributes)
                for event in span.events
            ],
            "links": [
                SpanLinkRecord(trace_id=link.context.trace_id, span_id=link.context.span_id) for link in span.links
            ],
            "llm_call": call_of_attributes(span.attributes),
        },
    )


def _nanos(seconds: float | None) -> int:
    nanos = 0.0 if seconds is None else seconds * NANOS_PER_SECOND
    return int(nanos) if math.isfinite(nanos) else 0
