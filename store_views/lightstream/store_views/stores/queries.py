"""Queries as objects: filters, order and page, checked. Pure."""

from __future__ import annotations

import math
import types
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel

from lightstream.runtime.clock import NANOS_PER_SECOND
from lightstream.schemas.errors import StoreError
from lightstream.schemas.records import RolloutMode, RolloutState
from lightstream.schemas.types import PaginatedResult, Rollout

from .times import nanos, seconds

__all__ = [
    "ALL",
    "Condition",
    "Operator",
    "Query",
    "exact_value_of_state",
    "page_of",
    "query_of",
    "rollouts_query",
    "value_of_state",
]

T = TypeVar("T")

ALL = -1


class Operator(Enum):
    """A comparison of a field with a value."""

    EXACT = "exact"
    WITHIN = "within"
    CONTAINS = "contains"
    PREFIX = "prefix"
    AT_LEAST = "at least"
    BELOW = "below"


@dataclass(frozen=True, slots=True)
class Condition:
    """One field compared with what was asked for."""

    field: str
    operator: Operator
    value: Any

    def holds(self, found: Any) -> bool:
        """Whether the field's value ``found`` is as asked."""
        if self.operator is Operator.EXACT:
            return bool(found == self.value)
        if self.operator is Operator.WITHIN:
            return bool(found in self.value)
        if found is None:
            return False
        if self.operator is Operator.CONTAINS:
            return bool(self.value in found)
        if self.operator is Operator.PREFIX:
            return bool(found.startswith(self.value))
        return bool(found >= self.value if self.operator is Operator.AT_LEAST else found < self.value)


@dataclass(frozen=True, slots=True)
class Query:
    """A checked query. ``sort_by`` is ``None`` for the order of insertion; ``limit`` is -1 for all."""

    conditions: tuple[Condition, ...]
    every: bool
    sort_by: str | None
    descending: bool
    limit: int
    offset: int

    def page(
        self,
        items: Iterable[T],
        value_of: Callable[[T, str], Any],
        exact_value_of: Callable[[T, str], Any] | None = None,
    ) -> PaginatedResult[T]:
        """The page of ``items``, of which ``value_of(item, field)`` tells the values, ``exact_value_of`` to sort by."""
        found = [item for item in items if self._matches(item, value_of)]
        if self.sort_by is not None:
            name = self.sort_by
            compared = value_of if exact_value_of is None else exact_value_of
            found.sort(key=lambda item: _sort_key(name, compared(item, name)), reverse=self.descending)
        end = None if self.limit == ALL else self.offset + self.limit
        return page_of(found[self.offset : end], limit=self.limit, offset=self.offset, total=len(found))

    def _matches(self, item: T, value_of: Callable[[T, str], Any]) -> bool:
        if not self.conditions:
            return True
        holds = (condition.holds(value_of(item, condition.field)) for condition in self.conditions)
        return all(holds) if self.every else any(holds)


def page_of(items: Sequence[T], *, limit: int, offset: int, total: int) -> PaginatedResult[T]:
    """A page. Of the class itself: one that is made for a type of items cannot be pickled, and has another name."""
    made: Any = PaginatedResult
    page: PaginatedResult[T] = made.model_construct(items=items, limit=limit, offset=offset, total=total)
    return page


def query_of(
    model: type[BaseModel],
    *,
    exact: dict[str, str | None] | None = None,
    within: dict[str, tuple[str, Sequence[str] | None]] | None = None,
    contains: dict[str, str | None] | None = None,
    prefix: dict[str, str | None] | None = None,
    times: dict[str, tuple[float | None, float | None]] | None = None,
    filter_logic: str = "and",
    sort_by: str | None,
    sort_order: str,
    limit: int,
    offset: int,
) -> Query:
    """The arguments of a query method, checked. Filters of ``None`` are left out.

    Args:
        model: what is queried; ``sort_by`` is one of its text or number fields.
        exact, contains, prefix: field -> value.
        within: field -> name of the argument, values.
        times: field -> first time, inclusive, and last, exclusive.

    Raises:
        StoreError: an argument has a wrong type or a value that means nothing.
    """
    conditions: list[Condition] = []
    for field, value in (exact or {}).items():
        if value is not None:
            conditions.append(Condition(field, Operator.EXACT, _text(field, value)))
    for field, (argument, values) in (within or {}).items():
        if values is not None:
            conditions.append(Condition(field, Operator.WITHIN, _texts(argument, values)))
    for field, value in (contains or {}).items():
        if value is not None:
            conditions.append(Condition(field, Operator.CONTAINS, _text(f"{field}_contains", value)))
    for field, value in (prefix or {}).items():
        if value is not None:
            conditions.append(Condition(field, Operator.PREFIX, _text(f"{field}_prefix", value)))
    for field, (first, last) in (times or {}).items():
        if first is not None:
            conditions.append(Condition(field, Operator.AT_LEAST, _number("started_after", first)))
        if last is not None:
            conditions.append(Condition(field, Operator.BELOW, _number("started_before", last)))
    if filter_logic not in ("and", "or"):
        raise StoreError(f"filter_logic is {filter_logic!r}; it must be 'and' or 'or'")
    if sort_order not in ("asc", "desc"):
        raise StoreError(f"sort_order is {sort_order!r}; it must be 'asc' or 'desc'")
    if sort_by is not None and sort_by not in _sortable(model):
        names = ", ".join(_sortable(model))
        raise StoreError(f"sort_by is {sort_by!r}; {model.__name__}s are sorted by one of {names}")
    if not _is_count(limit) and limit != ALL:
        raise StoreError(f"limit is {limit!r}; it must be a number of items, or -1 for all")
    if not _is_count(offset):
        raise StoreError(f"offset is {offset!r}; it must be a number of items")
    return Query(tuple(conditions), filter_logic == "and", sort_by, sort_order == "desc", limit, offset)


def _sort_key(name: str, value: Any) -> Any:
    """The latest for a time that is not known, the least for anything else."""
    if value is not None:
        return _Least(value)
    return _Least(math.inf) if name.endswith("_time") else _Least(None)


@dataclass(frozen=True, slots=True)
class _Least:
    """A value to sort by, with ``None`` below all."""

    value: Any

    def __lt__(self, other: _Least) -> bool:
        if self.value is None or other.value is None:
            return self.value is None and other.value is not None
        return bool(self.value < other.value)


@cache
def _sortable(model: type[BaseModel]) -> tuple[str, ...]:
    return tuple(sorted(name for name, field in model.model_fields.items() if _is_plain(field.annotation)))


def _is_plain(annotation: Any) -> bool:
    if annotation in (str, int, float, type(None)):
        return True
    origin = get_origin(annotation)
    if origin is Literal:
        return True
    return origin in (Union, types.UnionType) and all(_is_plain(part) for part in get_args(annotation))


def _text(argument: str, value: Any) -> str:
    if not isinstance(value, str):
        raise StoreError(f"{argument} is {value!r}; it must be a string")
    return value


def _texts(argument: str, values: Any) -> tuple[str, ...]:
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise StoreError(f"{argument} is {values!r}; it must be a list of strings")
    return tuple(_text(f"a value of {argument}", value) for value in values)


def _number(argument: str, value: Any) -> float:
    nanos(argument, value)
    return float(value)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def rollouts_query(
    *,
    status_in: Sequence[str] | None,
    rollout_id_in: Sequence[str] | None,
    rollout_id_contains: str | None,
    rollout_id_prefix: str | None,
    started_after: float | None,
    started_before: float | None,
    filter_logic: str,
    sort_by: str | None,
    sort_order: str,
    limit: int,
    offset: int,
) -> Query:
    """The arguments of ``query_rollouts``, checked.

    Raises:
        StoreError: one has a wrong type or a value that means nothing.
    """
    return query_of(
        Rollout,
        within={"status": ("status_in", status_in), "rollout_id": ("rollout_id_in", rollout_id_in)},
        contains={"rollout_id": rollout_id_contains},
        prefix={"rollout_id": rollout_id_prefix},
        times={"start_time": (started_after, started_before)},
        filter_logic=filter_logic,
        sort_by=sort_by,
        sort_order=sort_order,
        limit=limit,
        offset=offset,
    )


def value_of_state(state: RolloutState, field: str) -> Any:
    """The value of a rollout's field, without making the rollout."""
    return _VALUES[field](state)


def exact_value_of_state(state: RolloutState, field: str) -> Any:
    """As :func:`value_of_state`, times in nanoseconds: what was enqueued at once is nearer than seconds can tell."""
    return _NANOS[field](state) if field in _NANOS else _VALUES[field](state)


_NANOS: dict[str, Callable[[RolloutState], int | None]] = {
    "start_time": lambda state: state.rollout.enqueued_unix_nano,
    "end_time": lambda state: state.ended_unix_nano,
}

_VALUES: dict[str, Callable[[RolloutState], Any]] = {
    "rollout_id": lambda state: state.rollout.rollout_id,
    "status": lambda state: state.status.value,
    "start_time": lambda state: state.rollout.enqueued_unix_nano / NANOS_PER_SECOND,
    "end_time": lambda state: seconds(state.ended_unix_nano),
    "mode": lambda state: None if state.rollout.mode is RolloutMode.UNKNOWN else state.rollout.mode.value,
    "resources_id": lambda state: state.rollout.resources_id,
    "run_id": lambda state: state.rollout.run_id or None,
    "group_id": lambda state: state.rollout.group_id,
    "group_size": lambda state: state.rollout.group_size,
}
