"""A record's ``llm_call`` as attributes of a span, and back: spans as stores give them have attributes only.

Token ids, log-probabilities, policy version and resources stand under the names by which exporters take them, what
OpenTelemetry has a name for under that, and the rest under ``lightstream.llm_call.*``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .attribute_names import (
    CHOICE_INDEX,
    POLICY_VERSION,
    PROMPT_TOKEN_IDS,
    RESOURCES_ID,
    RESPONSE_LOGPROBS,
    RESPONSE_TOKEN_IDS,
)
from .errors import RecordError
from .packing import pack_float32, pack_int32
from .records import LlmCall

_FINISH_REASONS = "gen_ai.response.finish_reasons"
_IDS = {
    "prompt_token_ids": PROMPT_TOKEN_IDS,
    "response_token_ids": RESPONSE_TOKEN_IDS,
    "response_token_ends": "lightstream.llm_call.response_token_ends",
}
_PLAIN = {
    "response_id": "gen_ai.response.id",
    "requested_model": "gen_ai.request.model",
    "response_model": "gen_ai.response.model",
    "policy_version": POLICY_VERSION,
    "resources_id": RESOURCES_ID,
    "choice_index": CHOICE_INDEX,
    "streamed": "lightstream.llm_call.streamed",
    "http_status": "lightstream.llm_call.http_status",
    "error_message": "lightstream.llm_call.error_message",
    "request_json": "lightstream.llm_call.request_json",
    "response_json": "lightstream.llm_call.response_json",
    "response_tokens_text": "lightstream.llm_call.response_tokens_text",
    "sampling_json": "lightstream.llm_call.sampling_json",
}


def attributes_of_call(call: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes that describe a call completely.

    Args:
        call: fields of :class:`LlmCall`; ids and log-probabilities as lists of numbers. ``None`` is not known.
    """
    names = _PLAIN | _IDS
    attributes = {name: call[field] for field, name in names.items() if call.get(field) not in (None, "")}
    if call.get("response_logprobs") is not None:
        attributes[RESPONSE_LOGPROBS] = [float(value) for value in call["response_logprobs"]]  # JSON has NaN as text
    if call.get("finish_reason") is not None:
        attributes[_FINISH_REASONS] = [call["finish_reason"]]
    return attributes


def call_of_attributes(attributes: Mapping[str, Any]) -> LlmCall | None:
    """The call that :func:`attributes_of_call` wrote; ``None`` where these are other attributes."""
    if CHOICE_INDEX not in attributes:  # every call has it
        return None
    values = {field: attributes[name] for field, name in _PLAIN.items() if name in attributes}
    reasons = attributes.get(_FINISH_REASONS)
    if isinstance(reasons, list | tuple) and reasons:
        values["finish_reason"] = reasons[0]
    try:
        for field, name in _IDS.items():
            if name in attributes:
                values[field] = pack_int32(attributes[name])
        if RESPONSE_LOGPROBS in attributes:
            values["response_logprobs"] = pack_float32(attributes[RESPONSE_LOGPROBS])
        return LlmCall(**values)
    except (RecordError, TypeError, ValueError):
        return None
