"""Queries of rollouts as SQL over the view. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from ..queries import ALL, Query
from .query_sql import Parameters, Statement, matching, ordered, paged, select

COLUMNS: dict[str, str] = {
    "start_time": "enqueued_unix_nano",
    "end_time": "ended_unix_nano",
    "mode": "nullif(mode, 'unknown')",
    "run_id": "nullif(run_id, '')",
}
"""Field of a rollout -> expression over the view ``rollouts``, where that is not the field's own name."""

BOUNDED_ROWS_MAX = 10_000
"""To find a bound for more takes longer than it saves."""

BY_AGE = "enqueued_unix_nano, rollout_id"


def page_and_count_sql(query: Query) -> Statement:
    """The page's rollouts, each with the count of all that match as ``total``: both of one moment."""
    parameters = Parameters()
    # The count stands outside: beside the page it would be joined to every row before the page is cut.
    columns = f"*, ({_count(query, parameters)}) AS total"
    order = f" ORDER BY {ordered(query, COLUMNS, BY_AGE)}"
    return Statement(select(columns, f"({_page(query, parameters)})", tail=order), parameters)


def ids_and_count_sql(query: Query) -> Statement:
    """The ids of the page's rollouts, in its order, as one list; and the count of all that match, of one moment."""
    parameters = Parameters()
    ids = f"coalesce(list(rollout_id ORDER BY {ordered(query, COLUMNS, BY_AGE)}), [])"
    columns = f"{ids}, ({_count(query, parameters)})"
    return Statement(select(columns, f"({_page(query, parameters)})"), parameters)


def count_sql(query: Query) -> Statement:
    """The count of rollouts that match."""
    parameters = Parameters()
    return Statement(_count(query, parameters), parameters)


def states_sql(rollout_ids: Sequence[str], query: Query | None = None) -> Statement:
    """These rollouts; with a query, the matching ones."""
    parameters = Parameters()
    among = f"rollout_id IN {parameters.names(rollout_ids)}"
    matches = "" if query is None else matching(query, COLUMNS, parameters)
    return Statement(select("*", "rollouts", among, matches), parameters)


def attempts_sql(rollout_ids: Sequence[str]) -> Statement:
    """Id and attempts of these rollouts."""
    return _among("rollout_id, attempts", "rollouts", "rollout_id", rollout_ids)


def statuses_sql(rollout_ids: Sequence[str]) -> Statement:
    """Id and status of these rollouts."""
    return _among("rollout_id, status", "rollouts", "rollout_id", rollout_ids)


def resources_sql(resources_ids: Sequence[str]) -> Statement:
    """These resources."""
    return _among("*", "resources", "resources_id", resources_ids)


def _among(columns: str, source: str, key: str, ids: Sequence[str]) -> Statement:
    parameters = Parameters()
    return Statement(select(columns, source, f"{key} IN {parameters.names(ids)}"), parameters)


def _count(query: Query, parameters: Parameters) -> str:
    return select("count(*)", "rollouts", matching(query, COLUMNS, parameters))


def _page(query: Query, parameters: Parameters) -> str:
    tail = f" ORDER BY {ordered(query, COLUMNS, BY_AGE)}{paged(query)}"
    conditions = matching(query, COLUMNS, parameters), _bound(query, parameters)
    return select("*", "rollouts", *conditions, tail=tail)


def _bound(query: Query, parameters: Parameters) -> str:
    """The time that no row of a page of the newest can be older than, as a condition.

    Rows lie in about the order of their times, so that each is a candidate when its turn comes, for a tenth of a
    microsecond. To find the bound takes a third of that, and with it most groups of rows need not be read.
    """
    last = query.limit + query.offset
    if query.sort_by != "start_time" or not query.descending or query.limit == ALL or last > BOUNDED_ROWS_MAX:
        return ""
    column = COLUMNS["start_time"]
    newest = f"list_min(max({column}, {max(last, 1)}))"
    return f"{column} >= ({select(newest, 'rollouts', matching(query, COLUMNS, parameters))})"
