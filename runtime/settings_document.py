"""Settings in words, and as Markdown: ``python -m lightstream.runtime.settings_document > docs/settings.md``."""

from __future__ import annotations

import re
import sys
import types
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import SecretStr
from pydantic.fields import FieldInfo

from .settings import ENVIRONMENT_PREFIX, SETTING_GROUPS, Settings

HIDDEN = "(hidden)"

_KINDS: dict[Any, str] = {
    str: "text",
    bool: "`true` or `false`",
    int: "whole number",
    float: "number",
    Path: "path",
    SecretStr: "secret text",
}
_UNITS: dict[str, tuple[tuple[int, str], ...]] = {
    "bytes": ((1024**3, "GiB"), (1024**2, "MiB"), (1024, "KiB")),
    "s": ((24 * 3600, "d"), (3600, "h"), (60, "min")),
}
"""By the part of a setting's name that tells its unit."""

_CREDENTIALS_IN_URL = re.compile(r"(?<=://)[^/@\s]+(?=@)")


def is_secret(field: FieldInfo) -> bool:
    """True if the value is a secret, which is shown nowhere."""
    return _kind(field) is SecretStr


def accepted(name: str, field: FieldInfo) -> str:
    """Type and allowed values of a setting in Markdown, such as ``whole number, 1 to 1000``."""
    kind = _kind(field)
    if get_origin(kind) is Literal:
        return ", ".join(f"`{choice}`" for choice in get_args(kind))
    return ", ".join([_KINDS[kind], *_limits(name, field)])


def shown(value: object) -> str:
    """A value for people, with its secrets hidden."""
    if value is None:
        return "(unset)"
    if value == "":
        return "(empty)"
    if isinstance(value, SecretStr):
        return HIDDEN
    if isinstance(value, bool):
        return str(value).lower()
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


HEAD = """<!-- Written by `make docs`. -->

# Settings

Settings are environment variables, the same for every process; `lightstream up` hands them on to those that it starts.
In Python they are arguments too: `Settings.load(topic_prefix="mine.")`. `lightstream settings` shows what they are now.
A value that a setting cannot have is refused, and so is a variable that nearly has the name of a setting.

The name tells the unit: `_s` seconds, `_ms` milliseconds, `_bytes` bytes. Secrets are marked as such, and are shown
nowhere.
"""


def settings_as_markdown() -> str:
    """Every setting in its group, with its allowed values, its default, and its meaning."""
    return HEAD + "".join(_section(title, names) for title, names in SETTING_GROUPS.items())


def _section(title: str, names: Sequence[str]) -> str:
    rows = "".join(map(_row, names))
    return f"\n## {title}\n\n| variable | value | default | meaning |\n|---|---|---|---|\n{rows}"


def _row(name: str) -> str:
    field = Settings.model_fields[name]
    cells = (
        f"`{ENVIRONMENT_PREFIX}{name.upper()}`",
        accepted(name, field),
        _default(name, field.default),
        (field.description or "").replace("<", "&lt;"),
    )
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n"


def _default(name: str, value: object) -> str:
    if value is None or value == "":
        return "unset" if value is None else "empty"
    words = in_words(name, value)
    return f"`{shown(value)}` ({words})" if words else f"`{shown(value)}`"


if __name__ == "__main__":
    sys.stdout.write(settings_as_markdown())
