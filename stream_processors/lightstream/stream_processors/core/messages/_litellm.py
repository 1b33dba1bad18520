"""LiteLLM's raw request span: ``llm.<provider>.messages``, ``….tools`` and ``….choices``."""

from __future__ import annotations

from lightstream.schemas.records import SpanRecord

from ..dialects import raw_values
from ._bodies import request_and_response
from ._conversation import Conversation

__all__ = ["read_litellm_legacy"]

_ASKED, _ANSWERED = frozenset({"messages", "tools", "prompt"}), frozenset({"choices"})


def read_litellm_legacy(span: SpanRecord) -> Conversation | None:
    """The request and the answer as they were, where their text can be read."""
    _, values = raw_values(span, _ASKED | _ANSWERED)
    if not values:
        return None
    request = {name: value for name, value in values.items() if name in _ASKED}
    return request_and_response("litellm_legacy", request, {"choices": values.get("choices")})
