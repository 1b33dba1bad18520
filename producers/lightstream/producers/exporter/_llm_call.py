"""An LLM call from the canonical ``lightstream.*`` attributes."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any

from lightstream.schemas.codec.convert import constructed
from lightstream.schemas.errors import RecordError
from lightstream.schemas.packing import pack_float32, pack_int32
from lightstream.schemas.records import LlmCall

from .. import semconv

__all__ = ["take_llm_call"]

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
