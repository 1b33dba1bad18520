"""Token counts of a call as model servers report them, by each convention."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from lightstream.schemas.policy_names import VERSION_MAX

from ._read_call import is_map, parse_json


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """Tokens of the prompt, its tokens from the server's cache, and tokens of the response; ``None``: unknown."""

    prompt: int | None = None
    cached: int | None = None
    response: int | None = None


_PROMPT = (
    "gen_ai.usage.input_tokens",
    "gen_ai.usage.prompt_tokens",
    "llm.token_count.prompt",
    "llm.usage.prompt_tokens",
    "ai.usage.inputTokens",
    "ai.usage.promptTokens",
)
_CACHED = (
    "gen_ai.usage.cache_read.input_tokens",
    "gen_ai.usage.cache_read_input_tokens",
    "gen_ai.usage.input_tokens.cached",
    "llm.token_count.prompt_details.cache_read",
    "ai.usage.cachedInputTokens",
)
_RESPONSE = (
    "gen_ai.usage.output_tokens",
    "gen_ai.usage.completion_tokens",
    "llm.token_count.completion",
    "llm.usage.completion_tokens",
    "ai.usage.outputTokens",
    "ai.usage.completionTokens",
)
_WHOLE = ("langfuse.observation.usage_details", "mlflow.chat.tokenUsage")
"""Attributes that hold all counts, as JSON."""
_IN_WHOLE = (
    ("input", "input_tokens", "prompt_tokens"),
    ("input_cached_tokens", "cache_read_input_tokens"),
    ("output", "output_tokens", "completion_tokens"),
)


def token_usage(attributes: Mapping[str, Any]) -> TokenUsage:
    """The counts that a span's attributes name. Never raises; what is no count is unknown."""
    prompt, cached, response = (_first(attributes, names) for names in (_PROMPT, _CACHED, _RESPONSE))
    if prompt is None and response is None:
        for name in _WHOLE:
            whole = parse_json(attributes.get(name)) if name in attributes else None
            if is_map(whole):
                prompt, cached, response = (_first(whole, names) for names in _IN_WHOLE)
                break
    return TokenUsage(prompt, cached, response)


def _first(values: Mapping[str, Any], names: Iterable[str]) -> int | None:
    return next((count for name in names if (count := _count(values.get(name))) is not None), None)


def _count(value: object) -> int | None:
    """A whole number from 0 on, which some write as a fraction or as text."""
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < len(str(VERSION_MAX)):
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= VERSION_MAX:
        return None
    return int(value) if value == int(value) else None
