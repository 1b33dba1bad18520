"""A record as the plain values that fastavro writes: what our own writer is compared with."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from typing import Any, cast

from lightstream.schemas.packing import pack_int32
from lightstream.schemas.records import Record

PACKED_FROM_LENGTH = 8


def avro_values(record: Record) -> dict[str, Any]:
    """Field name -> value, with its branch named where a union leaves a choice. The record is unchanged."""
    annotations = {name: field.annotation for name, field in type(record).model_fields.items()}
    return {
        name: _attributes(value) if annotations[name] == dict[str, Any] else _plain(value)
        for name, value in record.__dict__.items()
    }


def _plain(value: Any) -> Any:
    if isinstance(value, Record):
        return avro_values(value)
    if isinstance(value, list):
        items: list[Any] = value
        return [_plain(item) for item in items]
    return value


def _attributes(values: Mapping[Any, Any]) -> dict[str, Any]:
    return {str(name): _attribute(value) for name, value in values.items()}


def _attribute(value: Any) -> Any:
    if isinstance(value, Mapping):
        entries: Mapping[Any, Any] = value
        return ("lightstream.AttributeMap", {"entries": _attributes(entries)})
    if isinstance(value, (list, tuple, array)):
        items = cast("list[Any]", value)
        if len(items) >= PACKED_FROM_LENGTH and all(type(i) is int and -(2**31) <= i < 2**31 for i in items):
            return ("lightstream.Int32List", {"int32_le": pack_int32(items)})
        return ("lightstream.AttributeList", {"items": [_attribute(item) for item in items]})
    if type(value) is int and not -(2**63) <= value < 2**63:
        return str(value)
    return value
