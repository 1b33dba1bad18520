"""Fingerprints by which repeated spans, and answers that two spans report, are recognised.

They are Python hashes: they differ between processes, so they are never stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lightstream.schemas.records import LlmCall, SpanRecord

from ..dialects import is_list, is_map, parse_json
from ..messages import as_text, read_conversation, text_of, why_incomplete


def span_fingerprint(span: SpanRecord) -> int:
    """64-bit hash of a span's content but for its recorded token data: the same record read twice has the same one.

    ``sequence_id`` and the counts of dropped attributes are left out: a second delivery may number them again. Of the
    recorded messages only the length counts: their tokens are compared themselves.
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
            None if call is None else _call_fields(call),
            span.scope_version,
            repr(sorted(span.attributes.items(), key=_name)) if span.attributes else None,
            tuple((e.name, e.time_unix_nano, repr(e.attributes)) for e in span.events),
            tuple((k.trace_id, k.span_id, repr(k.attributes)) for k in span.links),
        )
    )


def _call_fields(call: LlmCall) -> tuple[object, ...]:
    return (
        call.response_id,
        call.choice_index,
        call.requested_model,
        call.response_model,
        call.policy_version,
        tuple((run.first_token, run.policy_version) for run in call.policy_version_runs),
        call.finish_reason,
        call.resources_id,
        call.sampling_json,
        call.http_status,
        call.error_message,
        len(call.request_json or ""),
        len(call.response_json or ""),
    )


def _name(item: tuple[str, object]) -> str:
    return item[0]


def answer_fingerprint(span: SpanRecord) -> int | None:
    """Hash of the answer's text and tool calls, the same for every recorder; ``None`` where there is neither."""
    if span.llm_call is not None:
        answer = parse_json(span.llm_call.response_json)
    else:
        found = read_conversation(span)
        answer = found.answer[0] if found is not None and found.answer else None
    if not is_map(answer):
        return None
    text = text_of(answer.get("content")).strip()
    listed = answer.get("tool_calls")
    calls = tuple(_name_and_arguments(call) for call in listed) if is_list(listed) else ()
    return hash((text, calls)) if text or calls else None


def faults_of_conversation(span: SpanRecord) -> tuple[str, str]:
    """Reasons why the conversation of a call's span is not whole, and parts that no message can hold; empty for whole
    ones."""
    found = read_conversation(span)
    if found is None:
        return why_incomplete(span), ""
    return found.incomplete, ", ".join(sorted(set(found.left_out)))[:_LEFT_OUT_CHARS_MAX]


_LEFT_OUT_CHARS_MAX = 200
"""Kinds are texts of the span's."""


def _name_and_arguments(tool_call: object) -> tuple[str, str]:
    """A tool's name and arguments; whitespace between the arguments and their order do not count."""
    named = tool_call.get("function") if is_map(tool_call) else None
    function: Mapping[str, Any] = named if is_map(named) else {}
    arguments = function.get("arguments")
    parsed = parse_json(arguments)
    return as_text(function.get("name")), as_text(arguments if parsed is None else parsed, sort_keys=True)
