"""Queries of rollouts as SQL over the view. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from ...sql_literal import sql_literal
from .._query import ALL, Query
from .query_sql import matching, ordered, paged, where

__all__ = [
    "attempts_sql",
    "count_sql",
    "ids_and_count_sql",
    "page_and_count_sql",
    "resources_sql",
    "states_sql",
    "statuses_sql",
]

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

BOUNDED_ROWS_MAX = 10_000
"""To find a bound for more takes longer than it saves."""

BY_AGE = "enqueued_unix_nano, rollout_id"


def page_and_count_sql(query: Query) -> str:
    """The page's rollouts, each with how many match in all as ``total``: both of one moment."""
    order = ordered(query, COLUMNS, BY_AGE)
    # The count stands outside: beside the page it would be joined to every row before the page is cut.
    return f"SELECT *, ({count_sql(query)}) AS total FROM ({_page(query)}) ORDER BY {order}"  # noqa: S608  # every text in it is a literal


def ids_and_count_sql(query: Query) -> str:
    """Of the page's rollouts the ids, in its order, as one list; and how many match in all. Of one moment, too."""
    order = ordered(query, COLUMNS, BY_AGE)
    ids = f"coalesce(list(rollout_id ORDER BY {order}), [])"
    return f"SELECT {ids}, ({count_sql(query)}) FROM ({_page(query)})"  # noqa: S608  # every text in it is a literal


def count_sql(query: Query) -> str:
    """How many rollouts match."""
    return f"SELECT count(*) FROM rollouts{where(matching(query, COLUMNS))}"  # noqa: S608  # every text in it is a literal


def states_sql(rollout_ids: Sequence[str], query: Query | None = None) -> str:
    """These rollouts; with a query, those of them that match it."""
    demanded = "" if query is None else matching(query, COLUMNS)
    return f"SELECT * FROM rollouts{where(_among(rollout_ids), demanded)}"  # noqa: S608  # literals


def attempts_sql(rollout_ids: Sequence[str]) -> str:
    """Id and attempts of these rollouts."""
    return f"SELECT rollout_id, attempts FROM rollouts{where(_among(rollout_ids))}"  # noqa: S608  # literals


def statuses_sql(rollout_ids: Sequence[str]) -> str:
    """Id and status of these rollouts."""
    return f"SELECT rollout_id, status FROM rollouts{where(_among(rollout_ids))}"  # noqa: S608  # literals


def resources_sql(resources_ids: Sequence[str]) -> str:
    """These resources."""
    return f"SELECT * FROM resources{where(_among(resources_ids, 'resources_id'))}"  # noqa: S608  # literals


def _among(ids: Sequence[str], column: str = "rollout_id") -> str:
    return f"{column} IN ({', '.join(map(sql_literal, ids))})"


def _page(query: Query) -> str:
    rows = f"SELECT * FROM rollouts{where(matching(query, COLUMNS), _bound(query))}"  # noqa: S608  # checked
    return f"{rows} ORDER BY {ordered(query, COLUMNS, BY_AGE)}{paged(query)}"


def _bound(query: Query) -> str:
    """Of a page of the newest, what none of them can be older than.

    Rows lie in about the order of their times, so that each is a candidate when its turn comes, for a tenth of a
    microsecond. To find the bound takes a third of that, and with it most groups of rows need not be read.
    """
    last = query.limit + query.offset
    if query.sort_by != "start_time" or not query.descending or query.limit == ALL or last > BOUNDED_ROWS_MAX:
        return ""
    column, demands = COLUMNS["start_time"], where(matching(query, COLUMNS))
    return f"{column} >= (SELECT list_min(max({column}, {max(last, 1)})) FROM rollouts{demands})"  # noqa: S608  # checked
