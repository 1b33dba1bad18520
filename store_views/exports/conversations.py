"""Messages of a trajectory's calls, from the spans that the view keeps."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from lightstream.schemas.records import (
    Drop,
    DropReason,
    LlmCall,
    SpanEventRecord,
    SpanRecord,
    Trajectory,
    TripletRecord,
)
from lightstream.stream_processors.core.messages import Conversation, read_conversation, why_incomplete

from ..sql_literal import sql_literal
from .paging import Ask, rows_of

IDS_PER_QUERY_MAX = 500
"""Span ids in one IN list: 20 bytes each, far below the largest request."""

_COLUMNS = """log_offset, trace_id, span_id, name, attributes::VARCHAR AS attributes,
    events::VARCHAR AS events, dropped_attributes_count, dropped_events_count,
    llm_choice_index, llm_request_json, llm_response_json"""


@dataclass(frozen=True, slots=True)
class Told:
    """A call and its messages: one that is training data, or one without token ids."""

    call: TripletRecord | Drop
    conversation: Conversation


def calls_of_text(trajectory: Trajectory) -> list[TripletRecord | Drop]:
    """The calls with exportable text, in log order: calls with token ids, and calls that lack only these."""
    dropped = [drop for drop in trajectory.drops if drop.is_llm_call and drop.reason == DropReason.NO_TOKEN_IDS]
    return sorted([*trajectory.triplets, *dropped], key=lambda call: (call.source_offset, call.choice_index))


def conversations_of(
    ask: Ask, trajectory: Trajectory, calls: Sequence[TripletRecord | Drop] | None = None
) -> list[Told]:
    """The messages of these calls (by default :func:`calls_of_text`), in their order; calls whose spans have none are
    left out.

    A call's own span is asked first, then the other spans that describe it; one that is whole counts before others.

    Raises:
        QueryError, ServiceUnavailableError: the view could not answer.
    """
    chosen = calls_of_text(trajectory) if calls is None else calls
    texts: list[Told] = []
    for start in range(0, len(chosen), IDS_PER_QUERY_MAX):
        some = chosen[start : start + IDS_PER_QUERY_MAX]
        by_span = said_by(ask, trajectory, [span_id for call in some for span_id in _spans_of(call)])
        for call in some:
            conversations = [by_span[span_id] for span_id in _spans_of(call) if span_id in by_span]
            whole = [conversation for conversation in conversations if not conversation.incomplete]
            texts += [Told(call, conversation) for conversation in (*whole, *conversations)[:1]]
    return texts


def _spans_of(call: TripletRecord | Drop) -> tuple[str, ...]:
    return (call.span_id, *call.joined_span_ids) if isinstance(call, TripletRecord) else (call.span_id,)


def said_by(ask: Ask, trajectory: Trajectory, span_ids: Sequence[str]) -> dict[str, Conversation]:
    """Span id -> the messages of this span of the attempt; spans without messages, and without lost ones, are left out.

    Raises:
        QueryError, ServiceUnavailableError: the view could not answer.
    """
    by_span: dict[str, Conversation] = {}
    for first in range(0, len(span_ids), IDS_PER_QUERY_MAX):
        by_span |= _conversations(ask, trajectory, span_ids[first : first + IDS_PER_QUERY_MAX])
    return by_span


def requests_of(ask: Ask, trajectory: Trajectory, span_ids: Sequence[str]) -> dict[str, str | None]:
    """Span id -> the request that this span of the attempt records, as JSON.

    Raises:
        QueryError, ServiceUnavailableError: the view could not answer.
    """
    requests: dict[str, str | None] = {}
    for first in range(0, len(span_ids), IDS_PER_QUERY_MAX):
        where = _among(trajectory, span_ids[first : first + IDS_PER_QUERY_MAX])
        select = "SELECT log_offset, span_id, llm_request_json FROM spans_raw"
        for row in rows_of(ask, select, ["log_offset"], where=where):
            requests.setdefault(row["span_id"], row["llm_request_json"])
    return requests


def _among(trajectory: Trajectory, span_ids: Iterable[str]) -> str:
    """A condition for spans of an attempt."""
    source = trajectory.source
    return (
        f"log_partition = {source.partition} AND log_offset BETWEEN {source.first_offset} AND {source.last_offset} "
        f"AND rollout_id = {sql_literal(trajectory.rollout_id)} AND attempt_id = {sql_literal(trajectory.attempt_id)} "
        f"AND span_id IN ({', '.join(map(sql_literal, span_ids))})"
    )


def _conversations(ask: Ask, trajectory: Trajectory, span_ids: Iterable[str]) -> dict[str, Conversation]:
    where = _among(trajectory, span_ids)
    by_span: dict[str, Conversation] = {}
    for row in rows_of(ask, f"SELECT {_COLUMNS} FROM spans_raw", ["log_offset"], where=where):  # noqa: S608  # our names
        if row["span_id"] in by_span:
            continue
        span = _span(row)
        conversation = read_conversation(span)
        if conversation is None and (why := why_incomplete(span)):
            conversation = Conversation("", incomplete=why)
        if conversation is not None:
            by_span[row["span_id"]] = conversation
    return by_span


def _span(row: dict[str, Any]) -> SpanRecord:
    """As much of the span as messages are read from."""
    call = None
    if row["llm_choice_index"] is not None:
        call = LlmCall(
            choice_index=row["llm_choice_index"],
            request_json=row["llm_request_json"],
            response_json=row["llm_response_json"],
        )
    return SpanRecord(
        trace_id=row["trace_id"],
        span_id=row["span_id"],
        name=row["name"],
        attributes=_parsed(row["attributes"]) or {},
        events=[
            SpanEventRecord(
                name=event["name"],
                attributes=event["attributes"],
                dropped_attributes_count=event.get("dropped_attributes_count", 0),
            )
            for event in _parsed(row["events"]) or ()
        ],
        dropped_attributes_count=row["dropped_attributes_count"],
        dropped_events_count=row["dropped_events_count"],
        llm_call=call,
    )


def _parsed(value: Any) -> Any:
    """JSON text, or what an answer of the view made of it."""
    return json.loads(value) if isinstance(value, str) else value
