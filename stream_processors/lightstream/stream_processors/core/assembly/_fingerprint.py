"""Fingerprint of a span's content: the same record read twice has the same one."""

from __future__ import annotations

from lightstream.schemas.records import LlmCall, SpanRecord

__all__ = ["fingerprint"]


def fingerprint(span: SpanRecord) -> int:
    """64-bit hash of what a span says but for its recorded token data; differs between processes, so never stored.

    ``sequence_id`` and the counts of dropped attributes are left out: a second delivery may number them again. Of the
    recorded messages only the length counts: their tokens say the rest, and are compared themselves.
    """
    call = span.llm_call
    return hash(
        (
            span.name,
            span.parent_id,
            span.kind,
            span.status,
            span.status_message,
            span.start_unix_nano,
            span.end_unix_nano,
            span.scope_name,
            None if call is None else _call(call),
            span.scope_version,
            repr(sorted(span.attributes.items(), key=_first)) if span.attributes else None,
            tuple((e.name, e.time_unix_nano, repr(e.attributes)) for e in span.events),
            tuple((k.trace_id, k.span_id, repr(k.attributes)) for k in span.links),
        )
    )


def _call(call: LlmCall) -> tuple[object, ...]:
    return (
        call.response_id,
        call.choice_index,
        call.requested_model,
        call.response_model,
        call.policy_version,
        tuple((run.first_token, run.policy_version) for run in call.policy_version_runs),
        call.finish_reason,
        call.http_status,
        call.error_message,
        len(call.request_json or ""),
        len(call.response_json or ""),
    )


def _first(item: tuple[str, object]) -> str:
    return item[0]
