"""A log record as a span record. Pure.

Newer GenAI instrumentations send prompts and answers as log records next to the span of the call. The log keeps them as
spans of no duration: children of the span that they name, in the trace and the rollout of that span.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from lightstream.schemas.codec.convert import constructed
from lightstream.schemas.records import SpanRecord

from ... import semconv
from ...ownership import owner_of, sequence_id_in
from ._model import Decoded, Origin
from ._span import SCOPE_ATTRIBUTES, SPAN_ID_BYTES, TRACE_ID_BYTES

__all__ = ["LogFields", "keep_log"]

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
    owner = owner_of(attributes, "", origin.owner)
    trace_id, span_id = log.trace_id, log.span_id
    has_trace = len(trace_id) == TRACE_ID_BYTES and any(trace_id)
    if not has_trace and owner.rollout_id is None:
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
        "rollout_id": owner.rollout_id,
        "attempt_id": owner.attempt_id,
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
