"""A call as span records, one per choice. Pure."""

from __future__ import annotations

import secrets
from typing import Any

from pydantic_core import to_json

from lightstream.schemas.attribute_names import TRUNCATED
from lightstream.schemas.errors import RecordError
from lightstream.schemas.packing import pack_float32, pack_int32
from lightstream.schemas.records import LlmCall, SpanKind, SpanRecord, SpanStatus

from .call import Call, Choice

__all__ = ["SPAN_NAME", "TRUNCATED", "smaller", "span_records"]

SPAN_NAME = "chat.completion"
SCOPE_NAME = "lightstream.producers.llm_proxy"

API_ATTRIBUTE = "lightstream.proxy.api"
"""Of a translated call: what the agent spoke. The recorded request is the chat request that was made of it."""

UPSTREAM_ID_ATTRIBUTE = "lightstream.proxy.upstream_response_id"
"""The model server's id of an answer that the agent saw under another."""

TRANSLATED = ("messages", "responses")

CUT_ORDER = (("request_json",), ("response_json",), ("prompt_token_ids", "response_token_ids", "response_logprobs"))
"""What is cut first: texts can be told from token ids, and a call without its tokens cannot be trained on."""


def span_records(call: Call) -> list[SpanRecord]:
    """One record per choice; a single one without tokens where the call gave none.

    Token ids and log-probabilities that cannot be packed (beyond int32 or float32) are left out, and the record's
    status message says so.
    """
    choices = sorted(call.answer.choices.values(), key=lambda choice: choice.index) or [Choice(0)]
    request_json = call.request_body.decode("utf-8", errors="replace") or None
    return [_record(call, choice, request_json) for choice in choices]


def smaller(record: SpanRecord) -> SpanRecord | None:
    """The record without the next field on the cutting list, or ``None`` if nothing is left to cut."""
    call = record.llm_call
    cut: list[str] = list(record.attributes.get(TRUNCATED, []))
    for names in CUT_ORDER if call is not None else ():
        if any(getattr(call, name) is not None for name in names):
            cut += [f"llm_call.{name}" for name in names]
            without = LlmCall.model_copy(call, update=dict.fromkeys(names)) if call is not None else None
            attributes = record.attributes | {TRUNCATED: cut}
            return record.model_copy(update={"llm_call": without, "attributes": attributes})
    return None


def _record(call: Call, choice: Choice, request_json: str | None) -> SpanRecord:
    answer = call.answer
    notes: list[str] = [call.error_message] if call.error_message else []
    llm_call = LlmCall(
        response_id=call.seen_response_id or answer.response_id,
        requested_model=call.requested_model,
        response_model=answer.model,
        policy_version=call.policy_version,
        resources_id=call.resources_id,
        prompt_token_ids=_packed(pack_int32, choice.prompt_token_ids or answer.prompt_token_ids, notes),
        response_token_ids=_packed(pack_int32, choice.token_ids, notes),
        response_logprobs=_packed(pack_float32, choice.logprobs, notes),
        choice_index=choice.index,
        finish_reason=choice.finish_reason,
        streamed=call.streams,
        http_status=call.http_status,
        error_message=call.error_message,
        request_json=request_json,
        response_json=to_json(choice.message).decode() if choice.message else None,
    )
    failed = call.error_message is not None
    return SpanRecord(
        rollout_id=call.caller.rollout_id,
        attempt_id=call.caller.attempt_id,
        trace_id=call.caller.trace_id,
        span_id=secrets.token_hex(8),
        parent_id=call.caller.parent_id,
        name=SPAN_NAME,
        kind=SpanKind.CLIENT,
        status=SpanStatus.ERROR if failed else SpanStatus.OK,
        status_message="; ".join(notes),
        start_unix_nano=call.started_unix_nano,
        end_unix_nano=call.ended_unix_nano,
        attributes=_attributes(call),
        scope_name=SCOPE_NAME,
        llm_call=llm_call,
    )


def _attributes(call: Call) -> dict[str, Any]:
    """OpenTelemetry's GenAI conventions, as far as they are known."""
    usage = call.answer.usage or {}
    values: dict[str, Any] = {
        "gen_ai.operation.name": "text_completion" if call.api == "text_completion" else "chat",
        "gen_ai.request.model": call.requested_model,
        "gen_ai.response.model": call.answer.model,
        "gen_ai.response.id": call.seen_response_id or call.answer.response_id,
        API_ATTRIBUTE: call.api if call.api in TRANSLATED else None,
        UPSTREAM_ID_ATTRIBUTE: call.answer.response_id if call.seen_response_id else None,
        "gen_ai.usage.input_tokens": usage.get("prompt_tokens"),
        "gen_ai.usage.output_tokens": usage.get("completion_tokens"),
    }
    return {name: value for name, value in values.items() if value is not None}


def _packed(pack: Any, values: list[Any] | None, notes: list[str]) -> bytes | None:
    if values is None:
        return None
    try:
        packed: bytes = pack(values)
    except RecordError as error:
        notes.append(str(error))
        return None
    return packed
