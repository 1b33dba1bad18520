"""Fields of OTLP's JSON, each checked for its type. Pure.

A field that is missing or ``null`` has its default value, as in protobuf.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any, cast

from lightstream.schemas.errors import DecodeError

from ._records import DEPTH_MAX, too_deep

LEVELS_OF_A_VALUE = 4
"""Objects and arrays that OTLP's JSON takes for one value in another: ``{"kvlistValue": {"values": [{"value": …``."""

LEVELS_OF_A_REQUEST = 20
"""And for where the outermost value is."""

LEVELS_MAX = LEVELS_OF_A_VALUE * DEPTH_MAX + LEVELS_OF_A_REQUEST

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[\[{]|[\]}]', re.DOTALL)


DEEP_CHARACTERS_MAX = 4 * 1024 * 1024
LEVELS_LOOKED_AT_MAX = 100_000
"""Bounds of the search for what is too deep, which is Python's and slow: half a second."""


def cut_to_depth(text: str) -> str:
    """The JSON with a text in place of each object and array below ``LEVELS_MAX``, which is no value of OTLP's.

    Raises:
        DecodeError: it is nested beyond ``LEVELS_LOOKED_AT_MAX``, or too large to be looked through for that.
    """
    if len(text) > DEEP_CHARACTERS_MAX:
        raise DecodeError(f"the body is nested deeply, and has over {DEEP_CHARACTERS_MAX:,} characters.")
    replacement = f'"{too_deep().message}"'
    kept: list[str] = []
    level, begin = 0, 0
    for token in _TOKEN.finditer(text):
        if token[0] in "[{":
            level += 1
            if level > LEVELS_LOOKED_AT_MAX:
                raise DecodeError(f"the body is nested more than {LEVELS_LOOKED_AT_MAX:,} deep.")
            if level == LEVELS_MAX + 1:
                kept.append(text[begin : token.start()])
        elif token[0] in "]}":
            if level == LEVELS_MAX + 1:
                kept.append(replacement)
                begin = token.end()
            level -= 1
    return "".join(kept) + text[begin:]


SHOWN_CHARACTERS = 80

LONG_ARRAY_LENGTH = 16
INTEGERS_MIN, INTEGERS_MAX = -(2**63), 2**64 - 1
"""Fields are ``int64``, ``uint64`` or less."""

_AS_INTEGERS = frozenset({int, str})

_NON_FINITE = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
"""ProtoJSON's spellings; ``float`` would take others too."""


def object_in(holder: Any, name: str) -> dict[str, Any]:
    """The object under ``name``, or an empty one."""
    value = _field(holder, name)
    if value is None:
        return {}
    if type(value) is not dict:
        raise _wrong(name, value, "an object")
    return cast("dict[str, Any]", value)


def list_in(holder: Any, name: str) -> list[Any]:
    """The array under ``name``, or an empty one."""
    value = _field(holder, name)
    if value is None:
        return []
    if type(value) is not list:
        raise _wrong(name, value, "an array")
    items: list[Any] = value
    return items


def text_in(holder: Any, name: str) -> str:
    """The text under ``name``, or none."""
    value = _field(holder, name)
    if value is None:
        return ""
    if type(value) is not str:
        raise _wrong(name, value, "a string")
    return value


def integer_in(holder: Any, name: str) -> int:
    """The integer under ``name``, or 0. It may be written as a number or as text."""
    value = _field(holder, name)
    number = 0 if value is None else _integer(name, value)
    if not INTEGERS_MIN <= number <= INTEGERS_MAX:
        raise _wrong(name, value, "an integer of 64 bits")
    return number


def identifier_in(holder: Any, name: str) -> bytes:
    """The bytes of an id in hex, or none; an id that is not hex has the length of no id."""
    value = text_in(holder, name)
    try:
        return binascii.unhexlify(value)
    except ValueError:
        return value.encode("utf-8", "replace")[:1]


def attributes_in(holder: Any) -> dict[str, Any]:
    """The array ``attributes`` of key-value objects, by key; of a key that comes twice the last value counts."""
    return {text_in(pair, "key"): value_in(object_in(pair, "value")) for pair in list_in(holder, "attributes")}


def value_in(value: dict[str, Any], depth: int = 0) -> Any:
    """The value of an ``AnyValue`` object; ``None`` for an empty one, or one of a kind that is not known.

    Args:
        depth: of the values that it is in.
    """
    if depth > DEPTH_MAX:
        raise too_deep()
    for kind, content in value.items():
        if content is None:
            continue
        if read := _READERS.get(kind):
            return read(content)
        if read_nested := _NESTED_READERS.get(kind):
            return read_nested(content, depth + 1)
    return None


def _field(holder: Any, name: str) -> Any:
    if type(holder) is not dict:
        raise _wrong(f"the container of {name!r}", holder, "an object")
    return cast("dict[str, Any]", holder).get(name)


def _integer(name: str, value: Any) -> int:
    if type(value) is int:
        return value
    if type(value) is float and value.is_integer():
        return int(value)
    if type(value) is str:
        try:
            return int(value)
        except ValueError:
            pass
    raise _wrong(name, value, "an integer")


def _double(value: Any) -> float:
    if type(value) is str and value in _NON_FINITE:
        return _NON_FINITE[value]
    if type(value) in (int, float, str):
        try:
            return float(value)
        except (ValueError, OverflowError):
            pass
    raise _wrong("doubleValue", value, "a number")


def _bytes(value: Any) -> bytes:
    if type(value) is not str:
        raise _wrong("bytesValue", value, "a base64 string")
    plain = value.rstrip("=").replace("-", "+").replace("_", "/")  # ProtoJSON takes both alphabets, and no padding
    try:
        return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except ValueError as error:
        raise _wrong("bytesValue", value, "base64") from error


def _boolean(value: Any) -> bool:
    if type(value) is not bool:
        raise _wrong("boolValue", value, "true or false")
    return value


def _text(value: Any) -> str:
    if type(value) is not str:
        raise _wrong("stringValue", value, "a string")
    return value


def _items(value: Any, depth: int) -> list[Any]:
    items = list_in(value, "values")
    integers = _integers(items) if len(items) >= LONG_ARRAY_LENGTH else None
    if integers is not None:
        return integers
    return [None if item is None else value_in(_object(item), depth) for item in items]


def _integers(items: list[Any]) -> list[int] | None:
    """Token ids, four times as fast as one by one; ``None`` where not all items are integers."""
    try:
        written = [item["intValue"] for item in items]
        return list(map(int, written)) if _AS_INTEGERS.issuperset(map(type, written)) else None
    except (KeyError, TypeError, ValueError):
        return None


def _pairs(value: Any, depth: int) -> dict[str, Any]:
    return {text_in(pair, "key"): value_in(object_in(pair, "value"), depth) for pair in list_in(value, "values")}


def _object(item: Any) -> dict[str, Any]:
    if type(item) is not dict:
        raise _wrong("an array's value", item, "an object")
    return cast("dict[str, Any]", item)


_READERS = {
    "stringValue": _text,
    "boolValue": _boolean,
    "intValue": lambda value: _integer("intValue", value),
    "doubleValue": _double,
    "bytesValue": _bytes,
}
_NESTED_READERS = {"arrayValue": _items, "kvlistValue": _pairs}


def _wrong(name: str, value: Any, expected: str) -> DecodeError:
    return DecodeError(f"{name} is {repr(value)[:SHOWN_CHARACTERS]}; expected {expected}.")
