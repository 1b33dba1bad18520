"""Values of attributes from protobuf. Pure.

``None``, bool, int, float, str, bytes, and lists and dicts of these. Text not in UTF-8 gets replacement characters;
of a key that comes twice the last value counts, as in the SDKs.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from google.protobuf.message import DecodeError as WireError

from lightstream.schemas.errors import DecodeError

from ._later import NumberArrays
from ._messages import ArrayValue, KeyValueList

__all__ = ["attributes_of", "list_of", "text", "value_of"]

DEPTH_MAX = 100
"""Of values in values; what protobuf's own parsers take."""

NAMES_KEPT = 4096
"""Attribute names, decoded: there are few, and they come again with every span."""

NAME_KEPT_BYTES_MAX = 256


def text(data: bytes) -> str:
    """UTF-8, with replacement characters where it is invalid."""
    return data.decode("utf-8", "replace")


def _name(data: bytes) -> str:
    return _kept_name(data) if len(data) <= NAME_KEPT_BYTES_MAX else text(data)


@lru_cache(maxsize=NAMES_KEPT)
def _kept_name(data: bytes) -> str:
    return text(data)


def attributes_of(pairs: Iterable[Any], later: NumberArrays | None = None, depth: int = 0) -> dict[str, Any]:
    """Attributes by name, from ``KeyValue`` messages.

    Args:
        later: takes long arrays of numbers, and fills them in when it is told to.
        depth: of the values that these are in.

    Raises:
        DecodeError: a value is not a message, or is nested too deeply.
    """
    attributes: dict[str, Any] = {}
    for pair in pairs:
        name = _name(pair.key)
        value = pair.value
        kind = value.WhichOneof("value")
        if kind == "string_value":
            attributes[name] = text(value.string_value)
        elif kind != "array_value" or later is None or not later.put_off(attributes, name, value.array_value):
            attributes[name] = value_of(value, depth)
    return attributes


def value_of(value: Any, depth: int = 0) -> Any:
    """The value of an ``AnyValue``.

    Raises:
        DecodeError: it is not a message, or is nested too deeply.
    """
    kind = value.WhichOneof("value")
    if kind == "string_value":
        return text(value.string_value)
    if kind == "array_value":
        return list_of(value.array_value, depth + 1)
    if kind == "kvlist_value":
        return attributes_of(_parsed(KeyValueList, value.kvlist_value, depth + 1).values, None, depth + 1)
    return None if kind is None else getattr(value, kind)


def list_of(data: bytes, depth: int = 0) -> list[Any]:
    """The values of an encoded ``ArrayValue``, one by one.

    Raises:
        DecodeError: it is not a message, or is nested too deeply.
    """
    return [value_of(item, depth) for item in _parsed(ArrayValue, data, depth).values]


def _parsed(message: Any, data: bytes, depth: int) -> Any:
    if depth > DEPTH_MAX:
        raise DecodeError(f"a value is nested over {DEPTH_MAX} deep")
    try:
        return message.FromString(data)
    except WireError as error:
        raise DecodeError(f"an attribute's value is malformed: {error}") from error
