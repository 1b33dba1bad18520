"""An option of an algorithm, declared in one place: its default, verl's key of the same meaning, and its bounds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, TypeVar, cast

from lightstream.schemas.errors import SettingsError

__all__ = ["Declared", "check_declared", "declared", "option"]

T = TypeVar("T")

_DECLARED = "lightstream.option"


@dataclass(frozen=True, slots=True)
class Declared:
    """What is known of an option beside its type and default.

    Attributes:
        verl: verl's keys of the same meaning.
        least: the smallest value that is taken, unless it is ``None``.
        positive: whether a finite number above 0 is needed, unless it is ``None``.
        choices: the values that are taken; empty: any.
    """

    verl: tuple[str, ...] = ()
    least: int | None = None
    positive: bool = False
    choices: tuple[object, ...] = ()


def option(
    default: T,
    *,
    verl: str | tuple[str, ...] = (),
    least: int | None = None,
    positive: bool = False,
    choices: tuple[object, ...] = (),
) -> T:
    """A field of a dataclass of options: see :class:`Declared`."""
    keys = (verl,) if isinstance(verl, str) else verl
    metadata = {_DECLARED: Declared(keys, least, positive, choices)}
    made: Any = field(default=default, metadata=metadata)
    return cast("T", made)


def declared(options: type) -> Mapping[str, Declared]:
    """The options of a class that were declared with :func:`option`, there or in a class that it extends."""
    return {
        f.name: f.metadata[_DECLARED]
        for base in reversed(options.__mro__)
        if is_dataclass(base)
        for f in fields(base)
        if _DECLARED in f.metadata
    }


def check_declared(options: object) -> None:
    """Refuse values outside of the bounds that options were declared with.

    Raises:
        SettingsError: names the first.
    """
    for name, of in declared(type(options)).items():
        value = getattr(options, name)
        if of.choices and value not in of.choices:
            raise SettingsError(f"VERL's {name} is {value!r}; there are {', '.join(map(str, of.choices))}.")
        if value is None:
            continue
        or_none = ", or None," if getattr(type(options), name, ...) is None else ""
        if of.least is not None and value < of.least:
            raise SettingsError(f"VERL's {name} is {value}; at least {of.least}{or_none} is needed.")
        if of.positive and not 0 < value < math.inf:
            raise SettingsError(f"VERL's {name} is {value}; a finite number above 0{or_none} is needed.")
