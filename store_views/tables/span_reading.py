"""Columns beside a span: the findings of the readers of attributes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from lightstream.schemas.records import SpanRecord
from lightstream.stream_processors.core.dialects import agent_name, read_calls, token_usage, tool_name
from lightstream.stream_processors.core.rewards import read_rewards

from .column import Column, Encoding

SPAN_READING = (
    Column(
        "read_calls",
        "INTEGER",
        pa.int32(),
        Encoding.PLAIN,
        (),
        "how many LLM calls the attributes tell of (choices of an answer count each); 0 for a span of LLM kind that "
        "names no call; NULL for all others, and where the writer recorded the call.",
    ),
    Column(
        "read_response_id",
        "VARCHAR",
        pa.string(),
        Encoding.PLAIN,
        (),
        "id of the response that these calls name.",
    ),
    Column("has_reward", "BOOLEAN", pa.bool_(), Encoding.PLAIN, (), "true where attributes or events hold a reward."),
    Column("read_model", "VARCHAR", pa.string(), Encoding.PLAIN, (), "model that these calls name."),
    Column(
        "prompt_tokens",
        "BIGINT",
        pa.int64(),
        Encoding.PLAIN,
        (),
        "tokens of the prompt of the span's LLM call, as its model server counted them.",
    ),
    Column(
        "cached_tokens", "BIGINT", pa.int64(), Encoding.PLAIN, (), "those of them that the server had in its cache."
    ),
    Column(
        "response_tokens",
        "BIGINT",
        pa.int64(),
        Encoding.PLAIN,
        (),
        "tokens of the response, as the model server counted them; of all choices together.",
    ),
    Column("agent_name", "VARCHAR", pa.string(), Encoding.PLAIN, (), "agent that the span itself names."),
    Column("tool_name", "VARCHAR", pa.string(), Encoding.PLAIN, (), "tool whose run the span is; NULL for all others."),
    *(
        Column(name, "VARCHAR", pa.string(), Encoding.PLAIN, (), meaning)
        for name, meaning in (
            ("release", "release that the agent asked for; NULL for all others."),
            ("release_arm", "arm of that call: `stable` or `candidate`."),
            ("release_model", "model that was asked for that call, in its last try."),
            ("release_key", "value that chose the arm: session, user, rollout or trace."),
            ("release_fallback", "reason why the stable model answered in place of the candidate, if it did."),
        )
    ),
)

RELEASE_ATTRIBUTES = tuple(f"lightstream.release.{name}" for name in ("name", "arm", "model", "key", "fallback"))

_NO_USAGE = (None, None, None)
_NO_RELEASE = (None,) * len(RELEASE_ATTRIBUTES)
_EMPTY = (None, None, False, None, *_NO_USAGE, None, None, *_NO_RELEASE)


def read_span(span: SpanRecord) -> tuple[Any, ...]:
    """A value for each column of :data:`SPAN_READING`. Records of our proxy say of the call itself all there is."""
    recorded = span.llm_call
    attributes = span.attributes
    if not attributes and not span.events:
        return _EMPTY
    if recorded is not None and recorded.http_status is not None:
        return (None, None, False, None, *_usage(attributes), None, None, *_release(attributes))
    has_reward = bool(read_rewards(span, 0))
    agent, tool = agent_name(span), tool_name(span)
    calls = read_calls(span) if recorded is None and attributes else None
    usage = _usage(attributes) if calls or recorded is not None else _NO_USAGE
    if not calls:
        return (None, None, has_reward, None, *usage, agent, tool, *_NO_RELEASE)
    response_id = next((call.response_id for call in calls if call.response_id is not None), None)
    model = next((call.model for call in calls if call.model), None)
    return (sum(call.names_a_call for call in calls), response_id, has_reward, model, *usage, agent, tool, *_NO_RELEASE)


def _release(attributes: Mapping[str, Any]) -> tuple[str | None, ...]:
    if RELEASE_ATTRIBUTES[0] not in attributes:
        return _NO_RELEASE
    values = (attributes.get(name) for name in RELEASE_ATTRIBUTES)
    return tuple(value if isinstance(value, str) else None for value in values)


def _usage(attributes: Mapping[str, Any]) -> tuple[int | None, ...]:
    usage = token_usage(attributes)
    return usage.prompt, usage.cached, usage.response
