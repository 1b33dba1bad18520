"""Columns beside a span that was not recorded as an LLM call: what the assembler's readers find in it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from lightstream.schemas.records import SpanRecord
from lightstream.stream_processors.core.dialects import read_calls
from lightstream.stream_processors.core.rewards import read_rewards

from .column import Column, Encoding

__all__ = ["SPAN_READING", "read_span"]

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
)

_NOTHING = (None, None, False)


def read_span(span: SpanRecord) -> tuple[Any, ...]:
    """A value for each column of :data:`SPAN_READING`. Records of our proxy say it all, and are not read again."""
    recorded = span.llm_call
    if recorded is not None and recorded.http_status is not None:
        return _NOTHING
    attributes = span.attributes
    if not attributes and not span.events:
        return _NOTHING
    has_reward = bool(read_rewards(span, 0))
    calls = read_calls(span) if recorded is None and attributes else None
    if not calls:
        return (None, None, has_reward) if has_reward else _NOTHING
    response_id = next((call.response_id for call in calls if call.response_id is not None), None)
    return sum(call.names_a_call for call in calls), response_id, has_reward
