"""Records from the fields of OTLP's items, whichever encoding they came in. Pure.

Newer GenAI instrumentations send prompts and answers as log records next to the span of the call. The log keeps them as
spans of no duration: children of the span that they name, in the trace and the rollout of that span.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from lightstream.producers import semconv
from lightstream.producers.attribution import (
    UNATTRIBUTED,
    Attribution,
    attribution_in_attributes,
    attribution_of,
    sequence_id_in,
)
from lightstream.producers.exporter import take_llm_call
from lightstream.schemas.codec.convert import constructed
from lightstream.schemas.errors import DecodeError
from lightstream.schemas.records import DeadLetterReason, SpanKind, SpanRecord, SpanStatus

DEPTH_MAX = 100
"""Deepest nesting of values; the limit of protobuf's own parsers."""


ITEMS_MAX = 100_000
"""Spans or log records of a request. Collectors send 8,192 by default; more than these take a core for a minute."""


def require_items_max(count: int) -> None:
    """Refuse a request of too many items, before any is decoded.

    Raises:
        DecodeError: there are more than :data:`ITEMS_MAX`.
    """
    if count > ITEMS_MAX:
        raise DecodeError(
            f"the request has {count:,} items; at most {ITEMS_MAX:,} are accepted: send several requests."
        )


class OtherSignalError(DecodeError):
    """The request is of another kind than its address says: nothing of it may be taken."""


def too_deep() -> DecodeError:
    """The error of a value nested deeper than that."""
    return DecodeError(f"a value is nested over {DEPTH_MAX} deep")


@dataclass(frozen=True, slots=True)
class Rejection:
    """A span or log record that cannot be kept; the rest of its request is.

    Attributes:
        value: the item as it came (protobuf or JSON), for the dead letter.
    """

    reason: DeadLetterReason
    detail: str
    value: bytes


@dataclass(slots=True)
class Decoded:
    """One request, in its order."""

    records: list[SpanRecord] = field(default_factory=list[SpanRecord])
    rejections: list[Rejection] = field(default_factory=list[Rejection])
    equal_logs: dict[str, int] = field(default_factory=dict[str, int])
    """Number of log records of each content so far, by its hash."""

    def reject(self, detail: str, value: bytes) -> None:
        """Leave one item out."""
        self.rejections.append(Rejection(DeadLetterReason.BROKEN_RULE, detail, value))


@dataclass(frozen=True, slots=True)
class Origin:
    """Fields that the items of one scope of one resource share.

    Attributes:
        attribution: of the resource, else of the request.
        sequence_id: of the resource; 0 for none.
        shared: fields of every record, by name.
        scope_attributes: of the instrumentation scope; kept with each item, as the record has no field for them.
    """

    attribution: Attribution = UNATTRIBUTED
    sequence_id: int = 0
    shared: Mapping[str, Any] = field(default_factory=dict[str, Any])
    scope_attributes: Mapping[str, Any] = field(default_factory=dict[str, Any])


DROPPED_RESOURCE_ATTRIBUTES = "otel.resource.dropped_attributes_count"


def origin_of(
    fallback: Attribution,
    *,
    resource_attributes: dict[str, Any],
    resource_dropped: int,
    resource_schema_url: str,
    scope_name: str,
    scope_version: str,
    scope_schema_url: str,
    scope_attributes: dict[str, Any],
) -> Origin:
    """The origin of the items of a scope; ``fallback`` is the attribution of the request."""
    if resource_dropped:
        resource_attributes = resource_attributes | {DROPPED_RESOURCE_ATTRIBUTES: resource_dropped}
    attribution = attribution_in_attributes(resource_attributes)
    return Origin(
        attribution=fallback if attribution is UNATTRIBUTED else attribution,
        sequence_id=sequence_id_in(resource_attributes),
        shared={
            "resource_attributes": resource_attributes,
            "resource_schema_url": resource_schema_url,
            "scope_name": scope_name,
            "scope_version": scope_version,
            "scope_schema_url": scope_schema_url,
        },
        scope_attributes=scope_attributes,
    )


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
"""Attribute that keeps the attributes of an instrumentation scope, if it has any."""

TRACE_ID_BYTES, SPAN_ID_BYTES = 16, 8
INT64_MAX = 2**63 - 1


def fault_of_ids(trace_id: bytes, span_id: bytes) -> str | None:
    """The fault of a span's ids, if any ("An ID with all zeroes OR of length other than … bytes is invalid")."""
    if len(trace_id) != TRACE_ID_BYTES or not any(trace_id):
        return f"the trace id {trace_id[:32].hex()!r} is not {TRACE_ID_BYTES} bytes, or all zeros"
    if len(span_id) != SPAN_ID_BYTES or not any(span_id):
        return f"the span id {span_id[:32].hex()!r} is not {SPAN_ID_BYTES} bytes, or all zeros"
    return None


def fault_of_times(*times_unix_nano: int) -> str | None:
    """The fault of these times, if any. Zero, and an end before the start, are for readers to judge."""
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
    values["rollout_id"], values["attempt_id"] = attribution_of(attributes, values["trace_state"], origin.attribution)
    if origin.scope_attributes:
        attributes[SCOPE_ATTRIBUTES] = dict(origin.scope_attributes)
    values["llm_call"] = take_llm_call(attributes)
    values["attributes"] = attributes
    values.update(origin.shared)
    decoded.records.append(constructed(SpanRecord, values))


EVENT_NAME = "event.name"
NO_TRACE = "0" * 32
DEFAULT_NAME = "log"


@dataclass(frozen=True, slots=True)
class LogFields:
    """Fields of a log record; ids as bytes, in whatever length they came."""

    trace_id: bytes
    span_id: bytes
    time_unix_nano: int
    observed_unix_nano: int
    severity_number: int
    severity_text: str
    event_name: str
    body: Any
    flags: int
    dropped_attributes_count: int


def keep_log(decoded: Decoded, origin: Origin, log: LogFields, attributes: dict[str, Any], content: bytes) -> None:
    """Add the record of a log record, or reject it: without a trace and a rollout it belongs nowhere.

    Args:
        attributes: the log record's. Taken over.
        content: the log record as it came. Its hash is the span id, so that a repeated delivery is the same span;
            of equal log records within one request each is kept.
    """
    attribution = attribution_of(attributes, "", origin.attribution)
    trace_id, span_id = log.trace_id, log.span_id
    has_trace = len(trace_id) == TRACE_ID_BYTES and any(trace_id)
    if not has_trace and attribution.rollout_id is None:
        decoded.reject("a log record that names neither a trace nor a rollout", content)
        return
    attributes[semconv.LOG_SEVERITY_NUMBER] = log.severity_number
    attributes[semconv.LOG_SEVERITY_TEXT] = log.severity_text
    attributes[semconv.LOG_BODY] = log.body
    if origin.scope_attributes:
        attributes[SCOPE_ATTRIBUTES] = dict(origin.scope_attributes)
    named = attributes.get(EVENT_NAME)
    time_unix_nano = log.time_unix_nano or log.observed_unix_nano
    values: dict[str, Any] = {
        "rollout_id": attribution.rollout_id,
        "attempt_id": attribution.attempt_id,
        "sequence_id": sequence_id_in(attributes) or origin.sequence_id,
        "trace_id": trace_id.hex() if has_trace else NO_TRACE,
        "span_id": _identity(decoded, content),
        "parent_id": span_id.hex() if has_trace and len(span_id) == SPAN_ID_BYTES and any(span_id) else None,
        "name": log.event_name or (named if isinstance(named, str) and named else DEFAULT_NAME),
        "start_unix_nano": time_unix_nano,
        "end_unix_nano": time_unix_nano,
        "attributes": attributes,
        "flags": log.flags,
        "dropped_attributes_count": log.dropped_attributes_count,
        **origin.shared,
    }
    decoded.records.append(constructed(SpanRecord, values))


def _identity(decoded: Decoded, content: bytes) -> str:
    first = blake2b(content, digest_size=SPAN_ID_BYTES).hexdigest()
    number = decoded.equal_logs.get(first, 0)
    decoded.equal_logs[first] = number + 1
    if number == 0:
        return first
    return blake2b(content, digest_size=SPAN_ID_BYTES, salt=number.to_bytes(8, "little")).hexdigest()
