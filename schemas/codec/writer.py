"""Writes records as Avro bytes.

fastavro takes twice as long (22 instead of 10 microseconds for a span), most of it to find the branch of each union by
checking a value against all of them. The bytes are the same; tests compare them.

A writer is a function of a value, made once for each type. Wire format: Avro 1.12 specification, "Binary encoding".
"""

from __future__ import annotations

import struct
import sys
import types
from array import array
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, TypeAlias, Union, get_args, get_origin

from ..packing import pack_int32
from ..records import Record, RecordEnum

Writer: TypeAlias = Callable[[Any], bytes]

WRITE_ERRORS = (ValueError, TypeError, OverflowError, AttributeError, KeyError, struct.error)
"""Errors that a writer raises when a value is not of its field's type."""

_PACK_INTS_FROM_LENGTH = 8
"""Shorter lists stay lists: a packed list costs about 8 items' worth of overhead."""
_INT32_MIN, _INT32_MAX = -(2**31), 2**31 - 1
_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1


@cache
def writer_of(record: type[Record]) -> Writer:
    """Encodes one ``record``, which is unchanged; a value of a wrong type raises one of :data:`WRITE_ERRORS`."""
    fields = [(name, _writer(field.annotation)) for name, field in record.model_fields.items()]

    def write_record(value: Record) -> bytes:
        values = value.__dict__
        return b"".join([write(values[name]) for name, write in fields])

    return write_record


def _writer(annotation: Any) -> Writer:
    if annotation in _PRIMITIVES:
        return _PRIMITIVES[annotation]
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        return _optional(_writer(next(argument for argument in arguments if argument is not type(None))))
    if origin is list:
        return _array(_writer(arguments[0]))
    if origin is dict:
        return _map(_value if arguments[1] is Any else _writer(arguments[1]))
    if issubclass(annotation, RecordEnum):
        return {member: _long(position) for position, member in enumerate(annotation)}.__getitem__
    return writer_of(annotation)


@lru_cache(maxsize=4096, typed=True)
def _varint(value: int) -> bytes:
    """A zig-zag, variable-length long. Those written last are kept: a rollout's times are in each of its records.

    Raises:
        OverflowError: it is beyond 64 bits.
    """
    if not _INT64_MIN <= value <= _INT64_MAX:
        raise OverflowError(f"{value} is beyond int64")
    zigzag = (value << 1) ^ (value >> 63)
    encoded = bytearray()
    while zigzag > 0x7F:
        encoded.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    encoded.append(zigzag)
    return bytes(encoded)


_COMMON = tuple(map(_varint, range(8192)))
"""Longs that are looked up: lengths of most texts and of 2,048 packed token ids."""


def _long(value: int) -> bytes:
    return _COMMON[value] if 0 <= value < 8192 else _varint(value)


def _bytes(value: bytes) -> bytes:
    return _long(len(value)) + value


def _string(value: str) -> bytes:
    encoded = value.encode()
    return _long(len(encoded)) + encoded


def _boolean(value: bool) -> bytes:
    return b"\x01" if value else b"\x00"


_double = struct.Struct("<d").pack

_PRIMITIVES: dict[Any, Writer] = {bool: _boolean, bytes: _bytes, float: _double, int: _long, str: _string}


def _optional(write: Writer) -> Writer:
    def write_optional(value: Any) -> bytes:
        return b"\x00" if value is None else b"\x02" + write(value)

    return write_optional


def _array(write: Writer) -> Writer:
    def write_array(values: Sequence[Any]) -> bytes:
        return b"".join((_long(len(values)), *map(write, values), b"\x00")) if values else b"\x00"

    return write_array


@lru_cache(maxsize=4096)
def _name(name: str) -> bytes:
    """A name of an attribute or map entry: there are few, and they come again with every record."""
    return _string(name)


def _map(write: Writer) -> Writer:
    def write_map(values: Mapping[str, Any]) -> bytes:
        if not values:
            return b"\x00"
        parts = [_long(len(values))]
        for name, value in values.items():
            parts += (_name(name), write(value))
        parts.append(b"\x00")
        return b"".join(parts)

    return write_map


# --- attribute values: the union of ``avro_schema.ATTRIBUTE_VALUE``, whose branches these bytes name

_NULL, _BOOLEAN, _LONG, _DOUBLE, _STRING, _BYTES, _INT32_LIST, _LIST, _MAP = (
    bytes([2 * branch]) for branch in range(9)
)


def _value(value: Any) -> bytes:
    if isinstance(value, str):
        return _STRING + _string(value)
    if isinstance(value, bool):
        return _BOOLEAN + _boolean(value)
    if isinstance(value, int):
        return _LONG + _long(value) if _INT64_MIN <= value <= _INT64_MAX else _STRING + _string(str(value))
    if value is None:
        return _NULL
    if isinstance(value, float):
        return _DOUBLE + _double(value)
    if isinstance(value, bytes):
        return _BYTES + _bytes(value)
    if isinstance(value, Mapping):
        return _MAP + _any_map({str(name): item for name, item in value.items()})
    if isinstance(value, array) and len(value) >= _PACK_INTS_FROM_LENGTH:
        if value.typecode == "i":
            return _INT32_LIST + _bytes(_little_endian(value))
        if value.typecode == "d":
            return _LIST + _doubles(value)
    if isinstance(value, (list, tuple, array)):
        items: Sequence[Any] = value
        return _INT32_LIST + _bytes(pack_int32(items)) if _packs_as_int32(items) else _LIST + _any_array(items)
    return _STRING + _string(str(value))


def _packs_as_int32(items: Sequence[Any]) -> bool:
    """True for a list that is long enough to gain by packing, and holds nothing but such integers."""
    if len(items) < _PACK_INTS_FROM_LENGTH or set(map(type, items)) != {int}:
        return False
    return bool(min(items) >= _INT32_MIN and max(items) <= _INT32_MAX)


def _little_endian(values: array[Any]) -> bytes:
    if sys.byteorder == "big":
        values = values[:]
        values.byteswap()
    return values.tobytes()


def _doubles(values: array[float]) -> bytes:
    """An attribute list of doubles: for each its branch and its eight bytes, written column by column."""
    count, data = len(values), _little_endian(values)
    items = bytearray(9 * count)
    items[0::9] = _DOUBLE * count
    for place in range(8):
        items[1 + place :: 9] = data[place::8]
    return b"".join((_long(count), items, b"\x00"))


_any_array, _any_map = _array(_value), _map(_value)
