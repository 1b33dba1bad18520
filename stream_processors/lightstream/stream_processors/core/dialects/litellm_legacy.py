"""LiteLLM's older callback: span ``raw_gen_ai_request`` with ``llm.<provider>.<key>``, often Python written as text."""

from __future__ import annotations

import ast
import json
from typing import Any

from lightstream.schemas.records import SpanRecord
from lightstream.schemas.valid_text import valid_text

from ._attributes import complete
from ._model import ReadCall
from ._values import parse_json, text_or_none
from .engine_response import read_response

__all__ = ["LITERAL_CHARS_MAX", "parse_literal", "raw_values", "read_litellm_legacy"]

SPAN_NAME = "raw_gen_ai_request"
LITERAL_CHARS_MAX = 4 * 1024 * 1024
"""Python's parser takes about 50 bytes of memory per character: 200 MB at this limit. It bounds nesting by itself."""

_KEYS = frozenset({"id", "model", "choices", "prompt_token_ids", "response_token_ids", "token_ids", "error"})
_TEXTS = frozenset({"id", "model"})


def read_litellm_legacy(span: SpanRecord) -> list[ReadCall]:
    """The calls of a raw request span; one without tokens where its text cannot be read."""
    provider, body = raw_values(span, _KEYS)
    if not body:
        return []
    calls = read_response(body, provider, "litellm_legacy") or [_untold(body)]
    for call in calls:
        call.is_request = True
    return complete(calls, span)


def raw_values(span: SpanRecord, keys: frozenset[str]) -> tuple[str, dict[str, Any]]:
    """``llm.<provider>`` and what a raw request span has below it under these keys; nothing of other spans."""
    provider, values = "llm", dict[str, Any]()
    for name, value in span.attributes.items() if span.name == SPAN_NAME else ():
        prefix, _, key = name.rpartition(".")
        if prefix.startswith("llm.") and prefix.count(".") == 1 and key in keys:
            provider = prefix
            values[key] = value if key in _TEXTS else parse_literal(value)
    return provider, values


def _untold(body: dict[str, Any]) -> ReadCall:
    """An answer that cannot be read has an id all the same."""
    return ReadCall("litellm_legacy", text_or_none(body.get("id")), model=text_or_none(body.get("model")) or "")


def parse_literal(value: object) -> Any:
    """Text as JSON or as a Python literal, other values as they are; ``None`` where it is neither or over a limit.

    Nor is one with a whole number that is too long to be written down.
    """
    if not isinstance(value, str):
        return value
    parsed = parse_json(value)
    if parsed is not None or len(value) > LITERAL_CHARS_MAX:
        return parsed
    try:
        literal = valid_text(ast.literal_eval(value))
        json.dumps(literal, default=str, skipkeys=True)
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return None
    return literal
