"""What a setting may be, and what it is, in words."""

from __future__ import annotations

import re
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import SecretStr
from pydantic.fields import FieldInfo

__all__ = ["accepted", "in_words", "is_secret", "shown"]

HIDDEN = "(hidden)"

_KINDS: dict[Any, str] = {str: "text", int: "whole number", float: "number", Path: "path", SecretStr: "secret text"}
_UNITS: dict[str, tuple[tuple[int, str], ...]] = {
    "bytes": ((1024**3, "GiB"), (1024**2, "MiB"), (1024, "KiB")),
    "s": ((24 * 3600, "d"), (3600, "h"), (60, "min")),
}
"""By the part of a setting's name that tells its unit."""

_CREDENTIALS_IN_URL = re.compile(r"(?<=://)[^/@\s]+(?=@)")


def is_secret(field: FieldInfo) -> bool:
    """Whether the value is shown to nobody."""
    return _kind(field) is SecretStr


def accepted(name: str, field: FieldInfo) -> str:
    """Type and allowed values of a setting in Markdown, such as ``whole number, 1 to 1000``."""
    kind = _kind(field)
    if get_origin(kind) is Literal:
        return ", ".join(f"`{choice}`" for choice in get_args(kind))
    return ", ".join([_KINDS[kind], *_limits(name, field)])


def shown(value: object) -> str:
    """A value for people: what is secret in it is hidden."""
    if value is None:
        return "(unset)"
    if value == "":
        return "(empty)"
    if isinstance(value, SecretStr):
        return HIDDEN
    return f"{value:.16g}" if isinstance(value, float) else _CREDENTIALS_IN_URL.sub(HIDDEN, str(value))


def in_words(name: str, value: object) -> str:
    """``32 MiB`` or ``7 d`` for a round number of a unit that is in the setting's name, else nothing."""
    if not isinstance(value, int | float):
        return ""
    units = next((units for part in name.split("_") if (units := _UNITS.get(part))), ())
    return next((f"{value / size:g} {unit}" for size, unit in units if value >= size and value % size == 0), "")


def _limits(name: str, field: FieldInfo) -> Iterator[str]:
    def limit(which: str) -> str | None:
        value = next((value for item in field.metadata if (value := getattr(item, which, None)) is not None), None)
        return None if value is None else in_words(name, value) or f"{value}"

    least, most = limit("ge"), limit("le")
    if least is not None and most is not None:
        yield f"{least} to {most}"
    elif least is not None:
        yield f"{least} or more"
    elif most is not None:
        above = limit("gt")
        yield f"at most {most}" if above is None else f"above {above}, at most {most}"
    elif (above := limit("gt")) is not None:
        yield f"above {above}"
    if (pattern := limit("pattern")) is not None:
        yield f"matching `{pattern}`"


def _kind(field: FieldInfo) -> Any:
    """The type, without ``None``."""
    annotation: Any = field.annotation
    if get_origin(annotation) in (Union, types.UnionType):
        return next(argument for argument in get_args(annotation) if argument is not type(None))
    return annotation
