"""From an ended OpenTelemetry span to a :class:`SpanRecord`. Pure; uses the SDK's public properties only."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanContext, StatusCode
from opentelemetry.trace import SpanKind as OtelSpanKind

from lightstream.producers import semconv
from lightstream.schemas.codec.convert import constructed
from lightstream.schemas.errors import RecordError
from lightstream.schemas.packing import pack_float32, pack_int32
from lightstream.schemas.records import (
    LlmCall,
    SpanEventRecord,
    SpanKind,
    SpanLinkRecord,
    SpanRecord,
    SpanStatus,
)

from ..attribution import (
    UNATTRIBUTED,
    Attribution,
    attribution_in_attributes,
    attribution_in_trace_state,
    sequence_id_in,
    take_attribution,
)
from ..context import AttemptRef

_MOVED = (semconv.PROMPT_TOKEN_IDS, semconv.RESPONSE_TOKEN_IDS, semconv.RESPONSE_LOGPROBS)


def take_llm_call(attributes: dict[str, Any]) -> LlmCall | None:
    """Move token ids and log-probabilities out of ``attributes`` into an :class:`LlmCall`.

    Returns ``None``, and leaves ``attributes`` as they are, where they hold no token ids or where these cannot be
    packed. Bytes count as packed already (little-endian int32 and float32).
    """
    prompt_ids, response_ids = attributes.get(semconv.PROMPT_TOKEN_IDS), attributes.get(semconv.RESPONSE_TOKEN_IDS)
    if prompt_ids is None and response_ids is None:
        return None
    try:
        prompt, response = _packed(prompt_ids, pack_int32), _packed(response_ids, pack_int32)
        logprobs = _packed(attributes.get(semconv.RESPONSE_LOGPROBS), pack_float32)
    except RecordError:
        return None
    for name in _MOVED:
        attributes.pop(name, None)
    get = attributes.get
    version = get(semconv.POLICY_VERSION)
    reasons = get("gen_ai.response.finish_reasons")
    values: dict[str, Any] = {
        "response_id": _text(get("gen_ai.response.id")),
        "requested_model": _text(get("gen_ai.request.model")) or "",
        "response_model": _text(get("gen_ai.response.model")),
        "policy_version": version if type(version) is int else None,
        "resources_id": _text(get(semconv.RESOURCES_ID)),
        "prompt_token_ids": prompt,
        "response_token_ids": response,
        "response_logprobs": logprobs,
        "finish_reason": _text(reasons[0]) if isinstance(reasons, (list, tuple)) and reasons else None,
    }
    return constructed(LlmCall, values)


def _packed(values: Any, pack: Callable[[Any], bytes]) -> bytes | None:
    if values is None or isinstance(values, bytes):
        return values
    if type(values) is not tuple and not isinstance(values, (list, tuple, array)):
        raise RecordError(f"a list of numbers is needed, not {type(values).__name__}.")
    return pack(values)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


_KINDS = {
    OtelSpanKind.INTERNAL: SpanKind.INTERNAL,
    OtelSpanKind.SERVER: SpanKind.SERVER,
    OtelSpanKind.CLIENT: SpanKind.CLIENT,
    OtelSpanKind.PRODUCER: SpanKind.PRODUCER,
    OtelSpanKind.CONSUMER: SpanKind.CONSUMER,
}
_STATUSES = {StatusCode.UNSET: SpanStatus.UNSET, StatusCode.OK: SpanStatus.OK, StatusCode.ERROR: SpanStatus.ERROR}
_AS_THEY_ARE = frozenset({str, int, float, bool, bytes, type(None)})

# OTLP trace.proto, SpanFlags: bits 0-7 are the W3C trace flags; bit 8: bit 9 is known; bit 9: the parent is remote.
_HAS_IS_REMOTE, _IS_REMOTE = 0x100, 0x200


def copied_attributes(span: ReadableSpan) -> dict[str, Any]:
    """The span's attributes, to be taken over by :func:`record_of`."""
    attributes: Any = span.attributes  # a view of the SDK's mapping, whose own copy is four times as fast as dict()
    copied: dict[str, Any] = attributes.copy() if type(attributes) is MappingProxyType else dict(attributes or {})
    return copied


def record_of(
    span: ReadableSpan, attempt: AttemptRef | None = None, *, attributes: dict[str, Any] | None = None
) -> SpanRecord:
    """The record of an ended span. The span is unchanged.

    ``attributes`` is a copy of the span's attributes that is taken over, where the caller has made one already.

    Which attempt it belongs to: what the span's attributes say (``lightstream.*``, ``agentlightning.*``), else
    ``attempt``, else what its trace state says, else its resource's attributes. Token ids
    and log-probabilities of the ``lightstream.*`` attributes move, packed, into ``llm_call``; those that cannot be
    packed stay attributes, for the assembler to report.

    Raises:
        RecordError: the span has no context.
    """
    context = span.get_span_context()
    if context is None:
        raise RecordError(f"the span {span.name!r} has no span context.")
    if attributes is None:
        attributes = copied_attributes(span)
    llm_call = take_llm_call(attributes)
    _make_plain(attributes)
    resource = span.resource
    resource_attributes = _resource_attributes(resource)
    trace_state = context.trace_state.to_header() if context.trace_state else ""
    sequence_id = sequence_id_in(attributes, resource_attributes)
    rollout_id, attempt_id = _attribution(attributes, attempt, trace_state, resource_attributes)
    scope = span.instrumentation_scope
    parent = span.parent
    status = span.status
    events, links = span.events, span.links
    values: dict[str, Any] = {
        "rollout_id": rollout_id,
        "attempt_id": attempt_id,
        "sequence_id": sequence_id,
        "trace_id": context.trace_id.to_bytes(16, "big").hex(),
        "span_id": context.span_id.to_bytes(8, "big").hex(),
        "parent_id": None if parent is None else parent.span_id.to_bytes(8, "big").hex(),
        "name": str(span.name),
        "kind": _KINDS.get(span.kind, SpanKind.UNKNOWN),
        "status": _STATUSES.get(status.status_code, SpanStatus.UNKNOWN),
        "status_message": status.description or "",
        "start_unix_nano": span.start_time or 0,
        "end_unix_nano": span.end_time or 0,
        "attributes": attributes,
        "events": [_event(event) for event in events] if events else [],
        "links": [_link(link) for link in links] if links else [],
        "resource_attributes": resource_attributes,
        "resource_schema_url": _schema_url(resource),
        "scope_name": "" if scope is None else scope.name,
        "scope_version": "" if scope is None else scope.version or "",
        "scope_schema_url": "" if scope is None else scope.schema_url or "",
        "trace_state": trace_state,
        "flags": _flags(context, parent),
        "dropped_attributes_count": span.dropped_attributes,
        "dropped_events_count": span.dropped_events,
        "dropped_links_count": span.dropped_links,
        "llm_call": llm_call,
    }
    return constructed(SpanRecord, values)


def _attribution(
    attributes: dict[str, Any], attempt: AttemptRef | None, trace_state: str, resource: dict[str, Any]
) -> Attribution:
    attribution = take_attribution(attributes)
    if attribution is not UNATTRIBUTED:
        return attribution
    if attempt is not None:
        return Attribution(attempt.rollout_id, attempt.attempt_id)
    attribution = attribution_in_trace_state(trace_state) if trace_state else UNATTRIBUTED
    return attribution_in_attributes(resource) if attribution is UNATTRIBUTED else attribution


def _flags(context: SpanContext, parent: SpanContext | None) -> int:
    remote = _IS_REMOTE if parent is not None and parent.is_remote else 0
    return int(context.trace_flags) | _HAS_IS_REMOTE | remote


def _schema_url(resource: Resource) -> str:
    return resource.schema_url or ""


def _event(event: Any) -> SpanEventRecord:
    return SpanEventRecord(
        name=str(event.name),
        time_unix_nano=event.timestamp or 0,
        attributes=_attributes(event.attributes),
        dropped_attributes_count=event.dropped_attributes,
    )


def _link(link: Any) -> SpanLinkRecord:
    context: SpanContext = link.context
    return SpanLinkRecord(
        trace_id=f"{context.trace_id:032x}",
        span_id=f"{context.span_id:016x}",
        trace_state=context.trace_state.to_header(),
        attributes=_attributes(link.attributes),
        dropped_attributes_count=link.dropped_attributes,
        flags=int(context.trace_flags) | _HAS_IS_REMOTE | (_IS_REMOTE if context.is_remote else 0),
    )


_last_resource: tuple[Resource | None, dict[str, Any]] = (None, {})
"""A process has one resource as a rule; its attributes are converted once and shared by the records."""


def _resource_attributes(resource: Resource) -> dict[str, Any]:
    global _last_resource
    known, attributes = _last_resource
    if known is not resource:
        attributes = _attributes(resource.attributes)
        _last_resource = resource, attributes
    return attributes


def _attributes(attributes: Mapping[str, Any] | None) -> dict[str, Any]:
    copied = dict(attributes or {})
    _make_plain(copied)
    return copied


def _make_plain(attributes: dict[str, Any]) -> None:
    for key, value in attributes.items():
        if type(value) not in _AS_THEY_ARE:
            attributes[key] = _plain(value)


def _plain(value: Any) -> Any:
    """An AnyValue made of plain Python types; any other object becomes text."""
    if type(value) in _AS_THEY_ARE:
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes, bytearray, memoryview)):
        items: list[Any] = list(value)
        return items if _AS_THEY_ARE.issuperset(map(type, items)) else [_plain(item) for item in items]
    if isinstance(value, (bool, int, float, str, bytes)):  # subclasses: enums, numpy.float64
        return _base_value(value)
    return str(value)


def _base_value(value: float | str | bytes) -> float | str | bytes:
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, bytes):
        return bytes(value)
    return int(value) if isinstance(value, int) else float(value)
