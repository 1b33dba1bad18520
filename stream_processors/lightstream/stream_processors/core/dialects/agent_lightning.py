"""Agent Lightning up to 0.3: plain ``prompt_token_ids`` on patched AgentOps spans, and its Weave operations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lightstream.schemas.records import SpanRecord

from ._attributes import complete
from ._model import ReadCall
from ._values import set_logprobs, set_token_ids, text_or_none

__all__ = ["read_agent_lightning"]

WEAVE = "agentlightning.operation.output."
_WEAVE_PROMPT = WEAVE + "prompt_token_ids"
_WEAVE_RESPONSES = (
    WEAVE + "response_token_ids.0",
    WEAVE + "choices.0.token_ids",
    WEAVE + "choices.0.provider_specific_fields.token_ids",
)
_WEAVE_LOGPROBS = (WEAVE + "choices.0.logprobs", WEAVE + "choices.0.logprobs.content")


def read_agent_lightning(span: SpanRecord) -> list[ReadCall]:
    """One call where the span has ids under either set of names."""
    attributes = span.attributes
    if "prompt_token_ids" in attributes or "response_token_ids" in attributes:
        call = ReadCall("agent_lightning")
        set_token_ids(call, "prompt_token_ids", attributes.get("prompt_token_ids"), "prompt_token_ids")
        set_token_ids(call, "response_token_ids", attributes.get("response_token_ids"), "response_token_ids")
        set_logprobs(call, attributes.get("logprobs.content"), "logprobs.content")
        return [complete(call, span)]
    if _WEAVE_PROMPT in attributes or any(name in attributes for name in _WEAVE_RESPONSES):
        return [complete(_weave(attributes), span)]
    return []


def _weave(attributes: Mapping[str, Any]) -> ReadCall:
    call = ReadCall("agent_lightning", model=text_or_none(attributes.get(WEAVE + "model")) or "")
    call.finish_reason = text_or_none(attributes.get(WEAVE + "choices.0.finish_reason"))
    set_token_ids(call, "prompt_token_ids", attributes.get(_WEAVE_PROMPT), _WEAVE_PROMPT)
    any(set_token_ids(call, "response_token_ids", attributes.get(name), name) for name in _WEAVE_RESPONSES)
    any(set_logprobs(call, attributes.get(name), name) for name in _WEAVE_LOGPROBS)
    return call
