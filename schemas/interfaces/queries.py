"""Arguments of a store's queries: filters, order and page, declared here alone.

The interface, every store, the server's requests and its client read these declarations. To add a filter, add a line.
Its name says what it compares: ``<field>`` is equal, ``<field>_in`` is one of a list, ``<field>_contains`` and
``<field>_prefix`` are parts of a text, ``started_after`` (inclusive) and ``started_before`` (exclusive) are seconds
since 1970. A filter that is left out or ``None`` does not filter.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, TypedDict, TypeVar, get_args, get_origin, get_type_hints

from ..types import RolloutStatus, WorkerStatus

Method = TypeVar("Method", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Default:
    """The value of an argument that is left out, where that is not ``None``."""

    value: Any


@dataclass(frozen=True, slots=True)
class FormerName:
    """This argument is an old name of another, which wins where both are given."""

    of: str


class Page(TypedDict, total=False):
    """Order and page. ``limit`` is the most items that are returned, -1 for all."""

    sort_order: Annotated[Literal["asc", "desc"], Default("asc")]
    limit: Annotated[int, Default(-1)]
    offset: Annotated[int, Default(0)]


class FilteredPage(Page, total=False):
    """As :class:`Page`, for a query with several filters. An item meets all of them (``and``), or any (``or``)."""

    filter_logic: Annotated[Literal["and", "or"], Default("and")]


class RolloutFilters(FilteredPage, total=False):
    """A query of rollouts. Without ``sort_by`` they are in the order of insertion."""

    sort_by: str | None
    status_in: Sequence[RolloutStatus] | None
    rollout_id_in: Sequence[str] | None
    rollout_id_contains: str | None
    rollout_id_prefix: str | None
    started_after: float | None
    started_before: float | None
    status: Annotated[Sequence[RolloutStatus] | None, FormerName("status_in")]
    rollout_ids: Annotated[Sequence[str] | None, FormerName("rollout_id_in")]


class AttemptFilters(Page, total=False):
    """A query of a rollout's attempts."""

    sort_by: Annotated[str | None, Default("sequence_id")]


class SpanFilters(FilteredPage, total=False):
    """A query of a rollout's or an attempt's spans."""

    sort_by: Annotated[str | None, Default("sequence_id")]
    trace_id: str | None
    trace_id_contains: str | None
    span_id: str | None
    span_id_contains: str | None
    parent_id: str | None
    parent_id_contains: str | None
    name: str | None
    name_contains: str | None


class ResourcesFilters(Page, total=False):
    """A query of resources. Without ``sort_by`` they are in the order of insertion."""

    sort_by: str | None
    resources_id: str | None
    resources_id_contains: str | None


class WorkerFilters(FilteredPage, total=False):
    """A query of workers. Without ``sort_by`` they are in the order of insertion."""

    sort_by: str | None
    status_in: Sequence[WorkerStatus] | None
    worker_id_contains: str | None


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a query.

    Attributes:
        annotation: its type.
        default: its value where it is left out.
        former_name_of: the argument that replaced it; empty for one that counts.
        is_list: whether it is a list of texts.
        known: the texts that an item can have, where only some are possible.
    """

    annotation: Any
    default: Any = None
    former_name_of: str = ""
    is_list: bool = False
    known: tuple[str, ...] = ()


@cache
def arguments_of(declared: type) -> Mapping[str, Argument]:
    """Read a declaration: name -> argument, in order."""
    return {name: _argument(hint) for name, hint in get_type_hints(declared, include_extras=True).items()}


def _argument(hint: Any) -> Argument:
    annotation, notes = (hint.__origin__, hint.__metadata__) if get_origin(hint) is Annotated else (hint, ())
    default = next((note.value for note in notes if isinstance(note, Default)), None)
    former_name_of = next((note.of for note in notes if isinstance(note, FormerName)), "")
    listed = next((part for part in get_args(annotation) if get_origin(part) is Sequence), None)
    values: Any = get_args(listed)[0] if listed else None
    known = get_args(values) if get_origin(values) is Literal else ()
    return Argument(annotation, default, former_name_of, listed is not None, known)


def takes(declared: type) -> Callable[[Method], Method]:
    """Give a method that ends with ``**query: Unpack[declared]`` a signature that names each argument."""

    def name_arguments(method: Method) -> Method:
        signature = inspect.signature(method)
        own = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
        named = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=one.default, annotation=one.annotation)
            for name, one in arguments_of(declared).items()
        ]
        method.__signature__ = signature.replace(parameters=[*own, *named])  # type: ignore[attr-defined]  # inspect reads it
        return method

    return name_arguments
