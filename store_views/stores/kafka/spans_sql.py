"""Queries of spans as SQL over the logged ones. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from ..queries import Query
from .query_sql import Parameters, Statement, matching, ordered, paged, select

COLUMNS: dict[str, str] = {
    "attempt_id": "coalesce(attempt_id, '')",
    "start_time": "nullif(start_unix_nano, 0)",
    "end_time": "nullif(end_unix_nano, 0)",
}
"""Field of a span -> expression over a row of ``spans_raw``, where that is not the field's own name."""

TOLD = """rollout_id, attempt_id, sequence_id, trace_id, span_id, parent_id, name, status, status_message,
    start_unix_nano, end_unix_nano, attributes, events, links, resource_attributes, resource_schema_url,
    log_offset, COLUMNS('^llm_')"""

ONCE = "row_number() OVER (PARTITION BY log_partition, attempt_id, trace_id, span_id ORDER BY log_offset) = 1"
"""Of repeated spans the first, as the view ``spans`` has it."""

BY_AGE = "log_offset"
"""The spans of a rollout lie in one partition."""


def spans_page_sql(rollout_id: str, attempt_id: str | None, query: Query) -> Statement:
    """The page's spans of a rollout, or of one attempt, each with the count of all that match as ``total``.

    The page is made of what it is told by alone: attributes and token ids, most of a span, are read of its rows only.
    """
    parameters = Parameters()
    page = _page(rollout_id, attempt_id, query, parameters)
    source = "spans_raw JOIN page USING (log_partition, log_offset)"
    spans = select(f"{TOLD}, total", source, _of(rollout_id, parameters), tail=" ORDER BY place")
    return Statement(f"{page} {spans}", parameters)


def span_offsets_sql(rollout_id: str, attempt_id: str | None, query: Query) -> Statement:
    """The offsets of the page's spans, in its order, as one list; and the count of all that match."""
    parameters = Parameters()
    offsets = "coalesce(list(log_offset ORDER BY place), []), coalesce(any_value(total), 0)"
    return Statement(f"{_page(rollout_id, attempt_id, query, parameters)} {select(offsets, 'page')}", parameters)


def span_count_sql(rollout_id: str, attempt_id: str | None, query: Query) -> Statement:
    """The count of spans that match."""
    parameters = Parameters()
    once = _once(rollout_id, parameters)
    return Statement(select("count(*)", f"({once})", *_conditions(attempt_id, query, parameters)), parameters)


def spans_at_sql(rollout_id: str, offsets: Sequence[int]) -> Statement:
    """The spans of a rollout that lie at these offsets."""
    parameters = Parameters()
    at = f"log_offset IN {parameters.names(offsets)}"
    return Statement(select(TOLD, "spans_raw", _of(rollout_id, parameters), at), parameters)


def _page(rollout_id: str, attempt_id: str | None, query: Query, parameters: Parameters) -> str:
    order = ordered(query, COLUMNS, BY_AGE)
    place = f"row_number() OVER (ORDER BY {order}) AS place"
    columns = f"log_partition, log_offset, {place}, count(*) OVER () AS total"
    once = f"({_once(rollout_id, parameters)})"
    tail = f" ORDER BY {order}{paged(query)}"
    page = select(columns, once, *_conditions(attempt_id, query, parameters), tail=tail)
    return f"WITH page AS MATERIALIZED ({page})"


def _once(rollout_id: str, parameters: Parameters) -> str:
    """All spans of a rollout, once each. As the view ``spans``, in one pass over what is logged."""
    return select("*", "spans_raw", _of(rollout_id, parameters), tail=f" QUALIFY {ONCE}")


def _of(rollout_id: str, parameters: Parameters) -> str:
    return f"rollout_id = {parameters.name(rollout_id)}"


def _conditions(attempt_id: str | None, query: Query, parameters: Parameters) -> tuple[str, str]:
    attempt = "" if attempt_id is None else f"{COLUMNS['attempt_id']} = {parameters.name(attempt_id)}"
    return attempt, matching(query, COLUMNS, parameters)
