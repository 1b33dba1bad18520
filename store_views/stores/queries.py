"""Queries as objects: filters, order and page, checked. Pure."""

from __future__ import annotations

import math
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache, cached_property
from typing import Annotated, Any, ClassVar, Literal, Self, TypeAlias, TypeVar, Union, cast, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError, create_model

from lightstream.runtime.clock import NANOS_PER_SECOND
from lightstream.schemas.errors import StoreError
from lightstream.schemas.interfaces import (
    Argument,
    AttemptFilters,
    ResourcesFilters,
    RolloutFilters,
    SpanFilters,
    WorkerFilters,
    arguments_of,
)
from lightstream.schemas.records import RolloutMode, RolloutState
from lightstream.schemas.types import Attempt, PaginatedResult, ResourcesUpdate, Rollout, Span, Worker

from .times import nanos, seconds

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
    """One field compared with a given value."""

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


class Query(BaseModel):
    """A query: its conditions, its order, and its page. Also the form of a request's body.

    The fields of a subclass are those of its declaration (:mod:`lightstream.schemas.interfaces.queries`). A filter of
    ``None`` does not filter.

    Attributes:
        sort_by: a text or number field of the items; ``None`` for the order of insertion.
        limit: how many items at most; -1 for all.
    """

    model_config = ConfigDict(frozen=True)

    items: ClassVar[type[BaseModel]]
    arguments: ClassVar[Mapping[str, Argument]]

    sort_by: str | None = None
    sort_order: Literal["asc", "desc"] = "asc"
    limit: int = ALL
    offset: int = 0

    @classmethod
    def checked(cls, **arguments: Any) -> Self:
        """Make a query of a method's arguments.

        Raises:
            StoreError: one has a wrong type or a value that means nothing; names it.
            TypeError: there is no such argument.
        """
        if unknown := sorted(arguments.keys() - cls.arguments.keys()):
            raise TypeError(f"a query of {cls.items.__name__} takes no {', '.join(unknown)}")
        for name in arguments.keys() & _former_names(cls.arguments):
            value, replaced_by = arguments.pop(name), cls.arguments[name].former_name_of
            if arguments.get(replaced_by) is None:
                arguments[replaced_by] = value
        try:
            query = cls.model_validate(arguments, strict=True)
        except ValidationError as error:
            first = error.errors()[0]
            name = ".".join(map(str, first["loc"]))
            raise StoreError(f"{name} is {first['input']!r:.200}; {first['msg']}") from error
        if query.sort_by is not None and query.sort_by not in _sortable(cls.items):
            names = ", ".join(_sortable(cls.items))
            kind = cls.items.__name__
            raise StoreError(  # begins as Agent Lightning's, which programs look for
                f"Failed to sort items by {query.sort_by!r}: field does not exist on {kind}, or is none to sort by "
                f"(sort_by: {names})"
            )
        if query.limit < ALL:
            raise StoreError(f"limit is {query.limit}; it must be a number of items, or -1 for all")
        if query.offset < 0:
            raise StoreError(f"offset is {query.offset}; it must be a number of items")
        _ = query.conditions
        return query

    @cached_property
    def conditions(self) -> tuple[Condition, ...]:
        """The filters: ``<field>_in``, ``<field>_contains``, ``<field>_prefix``, two times, or the field itself.

        Raises:
            StoreError: a time is out of range.
        """
        left_out = _NO_FILTERS | _former_names(self.arguments)
        given = ((name, getattr(self, name)) for name in type(self).model_fields if name not in left_out)
        return tuple(_condition(name, value) for name, value in given if value is not None)

    @property
    def every(self) -> bool:
        """Whether an item must meet all conditions, not any."""
        return bool(getattr(self, "filter_logic", "and") == "and")

    @property
    def descending(self) -> bool:
        """Whether the greatest comes first."""
        return self.sort_order == "desc"

    def page(
        self,
        items: Iterable[T],
        value_of: Callable[[T, str], Any],
        exact_value_of: Callable[[T, str], Any] | None = None,
    ) -> PaginatedResult[T]:
        """The page of ``items``; ``value_of(item, field)`` tells the values, ``exact_value_of`` the sort key."""
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


def _former_names(arguments: Mapping[str, Argument]) -> frozenset[str]:
    return frozenset(name for name, argument in arguments.items() if argument.former_name_of)


def page_of(items: Sequence[T], *, limit: int, offset: int, total: int) -> PaginatedResult[T]:
    """A page. Of the class itself: one that is made for a type of items cannot be pickled, and has another name."""
    page_class: Any = PaginatedResult
    page: PaginatedResult[T] = page_class.model_construct(items=items, limit=limit, offset=offset, total=total)
    return page


def _listed(values: Any) -> Any:
    """Make a list of any other collection; an iterator can be read once only."""
    return list(values) if isinstance(values, Iterable) and not isinstance(values, (str, bytes)) else values


OptionalTexts: TypeAlias = Annotated[list[str] | None, BeforeValidator(_listed)]

Made = TypeVar("Made", bound=type[Query])

_NO_FILTERS = frozenset({"filter_logic", *Query.model_fields})

_TIMES = {"started_after": Operator.AT_LEAST, "started_before": Operator.BELOW}

_ENDINGS = {"_in": Operator.WITHIN, "_contains": Operator.CONTAINS, "_prefix": Operator.PREFIX}


def _compared(name: str) -> tuple[str, Operator]:
    """The field that a filter compares, and how."""
    if name in _TIMES:
        return "start_time", _TIMES[name]
    ending = next((ending for ending in _ENDINGS if name.endswith(ending)), "")
    return (name.removesuffix(ending), _ENDINGS[ending]) if ending else (name, Operator.EXACT)


def _condition(name: str, value: Any) -> Condition:
    if name in _TIMES:
        nanos(name, value)
    return Condition(*_compared(name), value)


def _declared_by(declared: type) -> Callable[[Made], Made]:
    """Give a class of queries the arguments of a declaration, each a field."""

    def add_fields(query: Made) -> Made:
        arguments = arguments_of(declared)
        fields: dict[str, Any] = {
            name: (OptionalTexts if argument.is_list else argument.annotation, argument.default)
            for name, argument in arguments.items()
            if not argument.former_name_of
        }
        for name in fields.keys() - _NO_FILTERS:
            if _compared(name)[0] not in query.items.model_fields:
                raise TypeError(f"{declared.__name__}.{name} compares no field of {query.items.__name__}")
        query.arguments = arguments
        with_fields: Any = create_model(
            query.__name__, __base__=query, __doc__=query.__doc__, __module__=query.__module__, **fields
        )
        return cast("Made", with_fields)

    return add_fields


@_declared_by(RolloutFilters)
class RolloutQuery(Query):
    """A query of rollouts."""

    items = Rollout


@_declared_by(AttemptFilters)
class AttemptQuery(Query):
    """A query of a rollout's attempts."""

    items = Attempt


@_declared_by(SpanFilters)
class SpanQuery(Query):
    """A query of a rollout's or an attempt's spans."""

    items = Span


@_declared_by(ResourcesFilters)
class ResourcesQuery(Query):
    """A query of resources."""

    items = ResourcesUpdate


@_declared_by(WorkerFilters)
class WorkerQuery(Query):
    """A query of workers."""

    items = Worker


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


def value_of_state(state: RolloutState, field: str) -> Any:
    """The value of a rollout's field, without making the rollout."""
    return _VALUES[field](state)


def exact_value_of_state(state: RolloutState, field: str) -> Any:
    """As :func:`value_of_state`, times in nanoseconds: rollouts enqueued together are nearer than seconds can tell."""
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
