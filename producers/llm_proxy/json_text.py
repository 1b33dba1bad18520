"""JSON as it comes from others: with halves of surrogate pairs, which RFC 8259 allows (section 8.2). Pure."""

from __future__ import annotations

import json
from typing import Any

from pydantic_core import from_json

from lightstream.schemas.valid_text import valid_text

BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def read_json(data: bytes) -> Any:
    """The value, with ``?`` in place of each half of a surrogate pair.

    Raises:
        ValueError: it is not JSON, not UTF-8, or nested hundreds deep.
    """
    value, has_halves = read_json_as_sent(data)
    return valid_text(value) if has_halves else value


def read_json_as_sent(data: bytes) -> tuple[Any, bool]:
    """The value, and whether its texts may have halves of surrogate pairs, which the next piece of a stream completes.

    Raises:
        ValueError: as :func:`read_json`.
    """
    data = data.removeprefix(BYTE_ORDER_MARK)
    try:
        return from_json(data), False
    except ValueError as error:
        if b"\\u" not in data or "recursion" in str(error):
            raise
        first = error
    try:
        return json.loads(data.decode()), True
    except (ValueError, RecursionError):
        raise first from None


def half_pair_in(value: Any, path: str = "") -> str | None:
    """The place of the first text with half of a surrogate pair, such as ``messages[0].content``."""
    if isinstance(value, str):
        return path if str(valid_text(value)) != value else None
    items: list[tuple[str, Any]] = []
    if isinstance(value, dict):
        items = [(f"{path}.{name}" if path else str(name), item) for name, item in value.items()]
    elif isinstance(value, list):
        items = [(f"{path}[{number}]", item) for number, item in enumerate(value)]
    return next((found for place, item in items if (found := half_pair_in(item, place)) is not None), None)
