"""A span record from the fields of an OTLP span, whichever encoding they came in. Pure."""

from __future__ import annotations

from typing import Any

from lightstream.schemas.codec.convert import constructed
from lightstream.schemas.records import SpanKind, SpanRecord, SpanStatus

from ...exporter import take_llm_call
from ...ownership import owner_of, sequence_id_in
from ._model import Decoded, Origin

__all__ = ["KINDS", "SCOPE_ATTRIBUTES", "STATUSES", "fault_of_ids", "fault_of_times", "keep_span"]

KINDS = (
    SpanKind.INTERNAL,  # unspecified: "Implementations MAY assume SpanKind to be INTERNAL when receiving UNSPECIFIED."
    SpanKind.INTERNAL,
    SpanKind.SERVER,
    SpanKind.CLIENT,
    SpanKind.PRODUCER,
    SpanKind.CONSUMER,
)
"""By number (trace.proto)."""

STATUSES = (SpanStatus.UNSET, SpanStatus.OK, SpanStatus.ERROR)
"""By number (trace.proto)."""

SCOPE_ATTRIBUTES = "otel.scope.attributes"
"""Where the attributes of an instrumentation scope are kept, if it has any."""

TRACE_ID_BYTES, SPAN_ID_BYTES = 16, 8
INT64_MAX = 2**63 - 1


def fault_of_ids(trace_id: bytes, span_id: bytes) -> str | None:
    """What is wrong with a span's ids ("An ID with all zeroes OR of length other than … bytes is invalid")."""
    if len(trace_id) != TRACE_ID_BYTES or not any(trace_id):
        return f"the trace id {trace_id[:32].hex()!r} is not {TRACE_ID_BYTES} bytes, or all zeros"
    if len(span_id) != SPAN_ID_BYTES or not any(span_id):
        return f"the span id {span_id[:32].hex()!r} is not {SPAN_ID_BYTES} bytes, or all zeros"
    return None


def fault_of_times(*times_unix_nano: int) -> str | None:
    """What is wrong with these times. Zero, and an end before the start, are for readers to judge."""
    if max(times_unix_nano) > INT64_MAX:
        return f"the time {max(times_unix_nano)} ns is after the year 2262"
    return None


def keep_span(decoded: Decoded, origin: Origin, values: dict[str, Any], attributes: dict[str, Any]) -> None:
    """Add the record of a span with valid ids.

    Args:
        values: the record's fields but for those of ``origin`` and of the rollout. Taken over.
        attributes: the span's. Taken over; token ids and log-probabilities under our names leave them.
    """
    values["sequence_id"] = sequence_id_in(attributes) or origin.sequence_id
    values["rollout_id"], values["attempt_id"] = owner_of(attributes, values["trace_state"], origin.owner)
    if origin.scope_attributes:
        attributes[SCOPE_ATTRIBUTES] = dict(origin.scope_attributes)
    values["llm_call"] = take_llm_call(attributes)
    values["attributes"] = attributes
    values.update(origin.shared)
    decoded.records.append(constructed(SpanRecord, values))
