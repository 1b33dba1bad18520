"""Queries of the store as SQL over the view. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from ...sql_literal import sql_literal
from .._query import ALL, Condition, Operator, Query
from .._times import HALF_A_STEP_NANOS, nanos

__all__ = ["count_sql", "page_and_count_sql", "spans_sql", "states_sql"]

COLUMNS: dict[str, str] = {
    "rollout_id": "rollout_id",
    "status": "status",
    "start_time": "enqueued_unix_nano",
    "end_time": "ended_unix_nano",
    "mode": "nullif(mode, 'unknown')",
    "resources_id": "resources_id",
    "run_id": "nullif(run_id, '')",
    "group_id": "group_id",
    "group_size": "group_size",
}
"""Field of a rollout -> expression over the view ``rollouts``."""

ROWS_MAX = 2**62
"""More than there are, and limit and offset together fit in 64 bits."""

BOUNDED_ROWS_MAX = 10_000
"""To find a bound for more takes longer than it saves."""

BY_AGE = "enqueued_unix_nano, rollout_id"


def page_and_count_sql(query: Query) -> str:
    """The page's rollouts, each with how many match in all as ``total``: both of one moment."""
    order = BY_AGE
    if query.sort_by is not None:
        # A missing time counts as the latest, anything else missing as the least.
        last = query.sort_by.endswith("_time") != query.descending
        direction = f"{'DESC' if query.descending else 'ASC'} NULLS {'LAST' if last else 'FIRST'}"
        order = f"{COLUMNS[query.sort_by]} {direction}, {BY_AGE}"
    limit = "" if query.limit == ALL else f" LIMIT {min(query.limit, ROWS_MAX)}"
    offset = min(query.offset, ROWS_MAX)
    page = f"SELECT * FROM rollouts{_where(_conditions(query), _bound(query))} ORDER BY {order}{limit} OFFSET {offset}"  # noqa: S608  # checked
    # The count stands outside: beside the page it would be joined to every row before the page is cut.
    return f"SELECT *, ({count_sql(query)}) AS total FROM ({page}) ORDER BY {order}"  # noqa: S608  # every text in it is a literal


def count_sql(query: Query) -> str:
    """How many rollouts match."""
    return f"SELECT count(*) FROM rollouts{_where(_conditions(query))}"  # noqa: S608  # every text in it is a literal


def states_sql(rollout_ids: Sequence[str]) -> str:
    """These rollouts."""
    ids = ", ".join(map(sql_literal, rollout_ids))
    return f"SELECT * FROM rollouts WHERE rollout_id IN ({ids})"  # noqa: S608  # literals


def spans_sql(rollout_id: str) -> str:
    """All spans of a rollout, in the order they came. As the view ``spans``, in one pass over what is logged."""
    columns = """rollout_id, attempt_id, sequence_id, trace_id, span_id, parent_id, name, status, status_message,
        start_unix_nano, end_unix_nano, attributes, events, links, resource_attributes, resource_schema_url,
        COLUMNS('^llm_')"""
    first = "row_number() OVER (PARTITION BY log_partition, attempt_id, trace_id, span_id ORDER BY log_offset) = 1"
    of_it = f"rollout_id = {sql_literal(rollout_id)}"
    return f"SELECT {columns} FROM spans_raw WHERE {of_it} QUALIFY {first} ORDER BY log_offset"  # noqa: S608  # a literal


def _where(*conditions: str) -> str:
    """What all of them demand; empty ones demand nothing."""
    demanded = [f"({condition})" for condition in conditions if condition]
    return " WHERE " + " AND ".join(demanded) if demanded else ""


def _conditions(query: Query) -> str:
    return (" AND " if query.every else " OR ").join(map(_condition, query.conditions))


def _bound(query: Query) -> str:
    """Of a page of the newest, what none of them can be older than.

    Rows lie in about the order of their times, so that each is a candidate when its turn comes, for a tenth of a
    microsecond. To find the bound takes a third of that, and with it most groups of rows need not be read.
    """
    last = query.limit + query.offset
    if query.sort_by != "start_time" or not query.descending or query.limit == ALL or last > BOUNDED_ROWS_MAX:
        return ""
    column, where = COLUMNS["start_time"], _where(_conditions(query))
    return f"{column} >= (SELECT list_min(max({column}, {max(last, 1)})) FROM rollouts{where})"  # noqa: S608  # checked


def _condition(condition: Condition) -> str:
    column, value = COLUMNS[condition.field], condition.value
    if condition.operator is Operator.WITHIN:
        return f"{column} IN ({', '.join(map(sql_literal, value))})" if value else "FALSE"
    if condition.operator is Operator.EXACT:
        return f"{column} = {sql_literal(value)}"
    if condition.operator is Operator.CONTAINS:
        return f"contains({column}, {sql_literal(value)})"
    if condition.operator is Operator.PREFIX:
        return f"starts_with({column}, {sql_literal(value)})"
    sign = ">=" if condition.operator is Operator.AT_LEAST else "<"
    # Times that are one number of seconds are one time: nanoseconds would tell them apart.
    return f"{column} {sign} {nanos('a time', value) - HALF_A_STEP_NANOS}"
