"""Records to Avro bytes, by writers compiled once per record type from its fields.

Three times faster than handing dictionaries to fastavro (12 instead of 37 microseconds for a span with 640 token ids
on one slow core), whose time goes into finding the branch of each union by validating values against all of them.
The bytes are the same; tests compare them.

Wire format: Avro 1.12 specification, "Binary encoding". A writer appends to a ``bytearray``.
"""

from __future__ import annotations

import struct
import types
from array import array
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeAlias, Union, cast, get_args, get_origin

from ..packing import pack_int32
from ..records import Record, RecordEnum
from .convert import packs_as_int32

__all__ = ["Writer", "writer_of"]

Writer: TypeAlias = Callable[[bytearray, Any], None]

_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1
_pack_double = struct.Struct("<d").pack


def _varint(value: int) -> bytes:
    """A zig-zag, variable-length long.

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


_COMMON_LONGS = 8192
"""Longs below this are looked up: lengths of most texts and of 2,048 packed token ids."""
_COMMON = [_varint(value) for value in range(_COMMON_LONGS)]


@cache
def writer_of(record: type[Record]) -> Writer:
    """Appends one ``record`` to a buffer. The record is unchanged.

    A value of a wrong type raises ``AttributeError``, ``KeyError``, ``OverflowError``, ``TypeError``, ``ValueError``
    or ``struct.error``.
    """
    fields = [(name, _writer(field.annotation)) for name, field in record.model_fields.items()]

    def write(out: bytearray, instance: Record) -> None:
        values = instance.__dict__
        for name, write_field in fields:
            write_field(out, values[name])

    return write


def _writer(annotation: Any) -> Writer:
    if annotation in _PRIMITIVES:
        return _PRIMITIVES[annotation]
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        return _optional(_writer(next(argument for argument in arguments if argument is not type(None))))
    if origin is list:
        return _array(_writer(arguments[0]))
    if origin is dict:
        return _map(_write_value if arguments[1] is Any else _writer(arguments[1]))
    if issubclass(annotation, RecordEnum):
        return _enum(annotation)
    return writer_of(annotation)


def _write_long(out: bytearray, value: int) -> None:
    out += _COMMON[value] if 0 <= value < _COMMON_LONGS else _varint(value)


def _write_string(out: bytearray, value: str) -> None:
    encoded = value.encode()
    size = len(encoded)
    out += _COMMON[size] if size < _COMMON_LONGS else _varint(size)
    out += encoded


def _write_bytes(out: bytearray, value: bytes) -> None:
    size = len(value)
    out += _COMMON[size] if size < _COMMON_LONGS else _varint(size)
    out += value


def _write_double(out: bytearray, value: float) -> None:
    out += _pack_double(value)


def _write_boolean(out: bytearray, value: bool) -> None:
    out.append(1 if value else 0)


_PRIMITIVES: dict[Any, Writer] = {
    bool: _write_boolean,
    bytes: _write_bytes,
    float: _write_double,
    int: _write_long,
    str: _write_string,
}


def _optional(write: Writer) -> Writer:
    def write_optional(out: bytearray, value: Any) -> None:
        if value is None:
            out.append(0)
        else:
            out.append(2)  # branch 1, zig-zag
            write(out, value)

    return write_optional


def _array(write: Writer) -> Writer:
    def write_array(out: bytearray, values: list[Any]) -> None:
        if values:
            _write_long(out, len(values))
            for value in values:
                write(out, value)
        out.append(0)

    return write_array


def _map(write: Writer) -> Writer:
    def write_map(out: bytearray, values: Mapping[str, Any]) -> None:
        if values:
            _write_long(out, len(values))
            for name, value in values.items():
                _write_string(out, name)
                write(out, value)
        out.append(0)

    return write_map


def _enum(enum: type[RecordEnum]) -> Writer:
    positions = {member: _varint(position) for position, member in enumerate(enum)}

    def write_enum(out: bytearray, value: RecordEnum) -> None:
        out += positions[value]

    return write_enum


# --- attribute values: the union of ``avro_schema.ATTRIBUTE_VALUE``, whose branches these numbers name

_NULL, _BOOLEAN, _LONG, _DOUBLE, _STRING, _BYTES, _INT32_LIST, _LIST, _MAP = (2 * branch for branch in range(9))


def _write_value(out: bytearray, value: Any) -> None:
    kind = type(value)
    if kind is str:
        out.append(_STRING)
        _write_string(out, value)
    elif kind is int and _INT64_MIN <= value <= _INT64_MAX:
        out.append(_LONG)
        _write_long(out, value)
    else:
        _write_rarer_value(out, value)


def _write_rarer_value(out: bytearray, value: Any) -> None:
    if value is None:
        out.append(_NULL)
    elif isinstance(value, bool):
        out.append(_BOOLEAN)
        _write_boolean(out, value)
    elif isinstance(value, float):
        out.append(_DOUBLE)
        _write_double(out, value)
    elif isinstance(value, bytes):
        out.append(_BYTES)
        _write_bytes(out, value)
    elif isinstance(value, Mapping):
        out.append(_MAP)
        _write_attribute_map(out, {str(name): item for name, item in value.items()})
    elif isinstance(value, (list, tuple, array)):
        items = cast("list[Any]", value)
        if packs_as_int32(items):
            out.append(_INT32_LIST)
            _write_bytes(out, pack_int32(items))
        else:
            out.append(_LIST)
            _write_attribute_list(out, items)
    elif isinstance(value, int) and _INT64_MIN <= value <= _INT64_MAX:
        out.append(_LONG)
        _write_long(out, value)
    else:
        out.append(_STRING)
        _write_string(out, value if isinstance(value, str) else str(value))


_write_attribute_map = _map(_write_value)
_write_attribute_list = _array(_write_value)
