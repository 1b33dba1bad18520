"""An option of an algorithm, declared in one place: default, meaning, verl's keys, bounds and rules.

Checks, the table of the documentation, the command line and the reading of verl's configuration go by that.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from typing import Any, TypeVar, cast

from lightstream.schemas.errors import SettingsError

T = TypeVar("T")

_DECLARED = "lightstream.option"


@dataclass(frozen=True, slots=True)
class Rule:
    """A demand on another option, where an option is given.

    Attributes:
        values: of the other option; empty: all but its default.
        is_needed: whether the other option must have one of the values, or must not.
        why: end of the sentence that says so, such as ``which has no critic``.
        next_step: what to do; empty: to leave one of the two out.
    """

    other: str
    values: tuple[object, ...] = ()
    is_needed: bool = False
    why: str = ""
    next_step: str = ""

    def problem(self, options: object, name: str) -> SettingsError | None:
        """The error, where the options break the rule."""
        if not hasattr(options, self.other):  # it is of a class that extends this one
            return None
        value, given = getattr(options, self.other), getattr(options, name)
        among = value in self.values if self.values else value != _default(options, self.other)
        if among == self.is_needed:
            return None
        alternative = f", or set {self.other}={self.values[0]!r}" if self.is_needed else f" or {self.other}"
        shown = name if isinstance(given, Mapping) else f"{name}={given!r}"
        return SettingsError(
            f"VERL is given {shown}, but its {self.other} is {value!r}{f', {self.why}' if self.why else ''}.",
            next_step=self.next_step or f"Leave out {name}{alternative}.",
        )


def needs(other: str, *values: object, why: str = "", next_step: str = "") -> Rule:
    """The rule that another option must have one of these values."""
    return Rule(other, values, True, why, next_step)


def conflicts(other: str, *values: object, why: str = "", next_step: str = "") -> Rule:
    """The rule that another option must have none of these values; without any: that it must not be given."""
    return Rule(other, values, False, why, next_step)


@dataclass(frozen=True, slots=True)
class Declared:
    """The declaration of an option beside its type and default.

    Attributes:
        doc: what it does, for the table of options; empty: it is in the row of the option before.
        shown: its default as the table shows it; empty: the value itself.
        verl: verl's keys of the same meaning.
        verl_critic: verl's keys of the critic for what holds for actor and critic here.
        least, most: the smallest and the largest value that is taken, unless it is ``None``. Of a number that need not
            be whole, ``least`` is a float.
        above: the number that a finite value must be above, unless it is ``None``.
        finite: whether infinity is refused.
        choices: the values that are taken; empty: any.
        refused: values that verl has -> why they are not taken.
        rules: what other options must be, where this one is given.
    """

    doc: str = ""
    shown: str = ""
    verl: tuple[str, ...] = ()
    verl_critic: tuple[str, ...] = ()
    least: float | None = None
    most: float | None = None
    above: float | None = None
    finite: bool = False
    choices: tuple[object, ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict[str, str])
    rules: tuple[Rule, ...] = ()

    def wanted(self, value: Any) -> str | None:
        """The values that would be taken in place of ``value``; ``None`` if that is within the bounds."""
        if self.above is not None and not self.above < value < math.inf:
            return f"a finite number above {self.above:g}"
        if self.least is None:
            return None
        if not self.least <= value <= (math.inf if self.most is None else self.most):
            if self.most is not None:
                return f"a number from {self.least:g} to {self.most:g}"
            kind = f"a {'finite ' if self.finite else ''}number of " if isinstance(self.least, float) else ""
            return f"{kind}at least {self.least:g}"
        return f"a finite number of at least {self.least:g}" if self.finite and value == math.inf else None


def option(
    default: T,
    doc: str = "",
    *,
    shown: str = "",
    verl: str | tuple[str, ...] = (),
    verl_critic: tuple[str, ...] = (),
    least: float | None = None,
    most: float | None = None,
    above: float | None = None,
    finite: bool = False,
    choices: tuple[object, ...] = (),
    refused: Mapping[str, str] | None = None,
    rules: tuple[Rule, ...] = (),
) -> T:
    """A field of a dataclass of options: see :class:`Declared`. A default that is a mapping is copied."""
    keys = (verl,) if isinstance(verl, str) else verl
    of = Declared(doc, shown, keys, verl_critic, least, most, above, finite, choices, refused or {}, rules)
    metadata = {_DECLARED: of}
    made: Any = (
        field(default_factory=default.copy, metadata=metadata)
        if isinstance(default, dict)
        else field(default=default, metadata=metadata)
    )
    return cast("T", made)


def declared(options: type) -> Mapping[str, Declared]:
    """The options of a class that were declared with :func:`option`, there or in a class that it extends."""
    return {f.name: f.metadata[_DECLARED] for f in _fields(options)}


def check_declared(options: object) -> None:
    """Refuse values outside of the bounds and against the rules that options were declared with.

    Raises:
        SettingsError: names the first.
    """
    for name, of in declared(type(options)).items():
        value = getattr(options, name)
        if isinstance(value, str) and value in of.refused:
            raise SettingsError(
                f"VERL's {name} is {value!r}, {of.refused[value]}.",
                next_step=f"There are {', '.join(map(str, of.choices))}.",
            )
        if of.choices and value not in of.choices:
            raise SettingsError(f"VERL's {name} is {value!r}; there are {', '.join(map(str, of.choices))}.")
        if value is not None and (wanted := of.wanted(value)):
            or_none = ", or None," if getattr(type(options), name, ...) is None else ""
            raise SettingsError(f"VERL's {name} is {value}; {wanted}{or_none} is needed.")
    for name, of in declared(type(options)).items():
        if of.rules and getattr(options, name) != _default(options, name):
            for rule in of.rules:
                if problem := rule.problem(options, name):
                    raise problem


def options_as_markdown(options: type, names: Sequence[str]) -> str:
    """Return a table of some options of a class, in this order, with their defaults and sentences."""
    by_name = {f.name: f for f in _fields(options)}
    rows = (
        f"| `{name}` | {_shown_default(by_name[name])} | {by_name[name].metadata[_DECLARED].doc} |\n" for name in names
    )
    return f"| option | default | |\n|---|---|---|\n{''.join(rows)}"


def _shown_default(f: Field[Any]) -> str:
    of: Declared = f.metadata[_DECLARED]
    return of.shown or _shown(_default_of(f))


def _fields(options: type) -> Iterator[Field[Any]]:
    seen: set[str] = set()
    for base in reversed(options.__mro__):
        for f in fields(base) if is_dataclass(base) else ():
            if _DECLARED in f.metadata and f.name not in seen:
                seen.add(f.name)
                yield f


def _default(options: object, name: str) -> Any:
    return _default_of(next(f for f in _fields(type(options)) if f.name == name))


def _default_of(f: Field[Any]) -> Any:
    return f.default if f.default_factory is MISSING else f.default_factory()


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if value is None or value == {}:
        return "none"
    if isinstance(value, str):
        return f"`{value}`" if value else ""
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"
