"""SQL of queries: conditions, order and page. Each value is a parameter of the statement, not a part of it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

from ..queries import ALL, Condition, Operator, Query
from ..times import HALF_A_STEP_NANOS, nanos

Columns: TypeAlias = Mapping[str, str]
"""Field of a record -> SQL expression of it, where that is not its name; of times, in nanoseconds."""

ROWS_MAX = 2**62
"""More than there are, and limit and offset together fit in 64 bits."""


class Parameters(dict[str, Any]):
    """Values of a statement, by the names that it has for them."""

    def name(self, value: Any) -> str:
        """The placeholder of a value: ``$p1``, ``$p2``, …"""
        name = f"p{len(self) + 1}"
        self[name] = value
        return f"${name}"

    def names(self, values: Iterable[Any]) -> str:
        """The placeholders of several values, as a list in parentheses."""
        return f"({', '.join(map(self.name, values))})"


class Statement(NamedTuple):
    """A statement and its values, as ``ViewClient.query`` takes them."""

    sql: str
    parameters: Parameters


def select(columns: str, source: str, *conditions: str, tail: str = "") -> str:
    """``SELECT columns FROM source WHERE conditions tail``, all of it our own text."""
    return f"SELECT {columns} FROM {source}{where(*conditions)}{tail}"  # noqa: S608  # values are parameters


def where(*conditions: str) -> str:
    """All conditions together; empty ones are left out."""
    given = [f"({condition})" for condition in conditions if condition]
    return " WHERE " + " AND ".join(given) if given else ""


def matching(query: Query, columns: Columns, parameters: Parameters) -> str:
    """The condition that the query's filters make."""
    conditions = (_condition(condition, columns, parameters) for condition in query.conditions)
    return (" AND " if query.every else " OR ").join(conditions)


def ordered(query: Query, columns: Columns, insertion: str) -> str:
    """The query's order, and among equals (or without one) that of insertion."""
    if query.sort_by is None:
        return insertion
    # A missing time counts as the latest, anything else missing as the least.
    last = query.sort_by.endswith("_time") != query.descending
    direction = f"{'DESC' if query.descending else 'ASC'} NULLS {'LAST' if last else 'FIRST'}"
    return f"{columns.get(query.sort_by, query.sort_by)} {direction}, {insertion}"


def paged(query: Query) -> str:
    """Limit and offset."""
    limit = "" if query.limit == ALL else f" LIMIT {min(query.limit, ROWS_MAX)}"
    return f"{limit} OFFSET {min(query.offset, ROWS_MAX)}"


def _condition(condition: Condition, columns: Columns, parameters: Parameters) -> str:
    column, value = columns.get(condition.field, condition.field), condition.value
    if condition.operator is Operator.WITHIN:
        return f"{column} IN {parameters.names(value)}" if value else "FALSE"
    if condition.operator is Operator.EXACT:
        return f"{column} = {parameters.name(value)}"
    if condition.operator is Operator.CONTAINS:
        return f"contains({column}, {parameters.name(value)})"
    if condition.operator is Operator.PREFIX:
        return f"starts_with({column}, {parameters.name(value)})"
    sign = ">=" if condition.operator is Operator.AT_LEAST else "<"
    # Times that are one number of seconds are one time: nanoseconds would tell them apart.
    return f"{column} {sign} {nanos('a time', value) - HALF_A_STEP_NANOS}"
