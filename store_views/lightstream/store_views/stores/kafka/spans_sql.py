"""Queries of spans as SQL over what is logged. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from ...sql_literal import sql_literal
from .._query import Query
from .query_sql import matching, ordered, paged, where

__all__ = ["span_count_sql", "span_offsets_sql", "spans_at_sql", "spans_page_sql"]

COLUMNS: dict[str, str] = {
    "rollout_id": "rollout_id",
    "attempt_id": "coalesce(attempt_id, '')",
    "sequence_id": "sequence_id",
    "trace_id": "trace_id",
    "span_id": "span_id",
    "parent_id": "parent_id",
    "name": "name",
    "start_time": "nullif(start_unix_nano, 0)",
    "end_time": "nullif(end_unix_nano, 0)",
}
"""Field of a span -> expression over a row of ``spans_raw``."""

TOLD = """rollout_id, attempt_id, sequence_id, trace_id, span_id, parent_id, name, status, status_message,
    start_unix_nano, end_unix_nano, attributes, events, links, resource_attributes, resource_schema_url,
    log_offset, COLUMNS('^llm_')"""

ONCE = "row_number() OVER (PARTITION BY log_partition, attempt_id, trace_id, span_id ORDER BY log_offset) = 1"
"""Of repeated spans the first, as the view ``spans`` has it."""

BY_AGE = "log_offset"
"""The spans of a rollout lie in one partition."""


def spans_page_sql(rollout_id: str, attempt_id: str | None, query: Query) -> str:
    """The page's spans of a rollout, or of one attempt, each with how many match in all as ``total``.

    The page is made of what it is told by alone: attributes and token ids, most of a span, are read of its rows only.
    """
    spans = f"FROM spans_raw JOIN page USING (log_partition, log_offset) WHERE {_of(rollout_id)}"
    return f"{_with_page(rollout_id, attempt_id, query)} SELECT {TOLD}, total {spans} ORDER BY place"


def span_offsets_sql(rollout_id: str, attempt_id: str | None, query: Query) -> str:
    """Of the page's spans the offsets, in its order, as one list; and how many match in all."""
    offsets = "coalesce(list(log_offset ORDER BY place), []), coalesce(any_value(total), 0)"
    return f"{_with_page(rollout_id, attempt_id, query)} SELECT {offsets} FROM page"  # noqa: S608  # checked


def span_count_sql(rollout_id: str, attempt_id: str | None, query: Query) -> str:
    """How many spans match."""
    return f"SELECT count(*) FROM ({_once(rollout_id)}){_where(attempt_id, query)}"  # noqa: S608  # checked


def spans_at_sql(rollout_id: str, offsets: Sequence[int]) -> str:
    """The spans of a rollout that lie at these offsets."""
    return f"SELECT {TOLD} FROM spans_raw WHERE {_of(rollout_id)} AND log_offset IN ({', '.join(map(str, offsets))})"  # noqa: S608  # numbers


def _with_page(rollout_id: str, attempt_id: str | None, query: Query) -> str:
    order = ordered(query, COLUMNS, BY_AGE)
    place = f"row_number() OVER (ORDER BY {order}) AS place"
    page = f"SELECT log_partition, log_offset, {place}, count(*) OVER () AS total FROM ({_once(rollout_id)})"  # noqa: S608  # checked
    return f"WITH page AS MATERIALIZED ({page}{_where(attempt_id, query)} ORDER BY {order}{paged(query)})"


def _once(rollout_id: str) -> str:
    """All spans of a rollout, once each. As the view ``spans``, in one pass over what is logged."""
    return f"SELECT * FROM spans_raw WHERE {_of(rollout_id)} QUALIFY {ONCE}"  # noqa: S608  # a literal


def _of(rollout_id: str) -> str:
    return f"rollout_id = {sql_literal(rollout_id)}"


def _where(attempt_id: str | None, query: Query) -> str:
    attempt = "" if attempt_id is None else f"{COLUMNS['attempt_id']} = {sql_literal(attempt_id)}"
    return where(attempt, matching(query, COLUMNS))
