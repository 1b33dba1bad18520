"""Text that no record can hold: lone surrogates, which JSON writes as escapes where a text was cut in a character."""

from __future__ import annotations

from typing import Any

from .records import Record


def valid_text(value: Any) -> Any:
    """A text, or records, lists and mappings of texts, with ``?`` in place of each lone surrogate.

    ``value`` is unchanged.

    Raises:
        RecursionError: it is nested hundreds deep.
    """
    if type(value) is str:
        return value.encode(errors="replace").decode()
    if isinstance(value, Record):
        return type(value)(**valid_text(value.__dict__))
    if isinstance(value, dict):
        return {valid_text(name): valid_text(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(map(valid_text, value))
    return value
