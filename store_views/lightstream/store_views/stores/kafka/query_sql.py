"""What the SQL of any query has: which rows match, in which order, and which of them make the page. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from ...sql_literal import sql_literal
from .._query import ALL, Condition, Operator, Query
from .._times import HALF_A_STEP_NANOS, nanos

__all__ = ["Columns", "matching", "ordered", "paged", "where"]

Columns: TypeAlias = Mapping[str, str]
"""Field of what is queried -> SQL expression of it; of times, in nanoseconds."""

ROWS_MAX = 2**62
"""More than there are, and limit and offset together fit in 64 bits."""


def where(*demands: str) -> str:
    """What all of them demand; empty ones demand nothing."""
    demanded = [f"({demand})" for demand in demands if demand]
    return " WHERE " + " AND ".join(demanded) if demanded else ""


def matching(query: Query, columns: Columns) -> str:
    """What the query's filters demand."""
    return (" AND " if query.every else " OR ").join(_demand(condition, columns) for condition in query.conditions)


def ordered(query: Query, columns: Columns, insertion: str) -> str:
    """The query's order, and among equals (or without one) that of insertion."""
    if query.sort_by is None:
        return insertion
    # A missing time counts as the latest, anything else missing as the least.
    last = query.sort_by.endswith("_time") != query.descending
    direction = f"{'DESC' if query.descending else 'ASC'} NULLS {'LAST' if last else 'FIRST'}"
    return f"{columns[query.sort_by]} {direction}, {insertion}"


def paged(query: Query) -> str:
    """Limit and offset."""
    limit = "" if query.limit == ALL else f" LIMIT {min(query.limit, ROWS_MAX)}"
    return f"{limit} OFFSET {min(query.offset, ROWS_MAX)}"


def _demand(condition: Condition, columns: Columns) -> str:
    column, value = columns[condition.field], condition.value
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
