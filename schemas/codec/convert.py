"""Records from plain values that Avro has decoded, or that somebody read from another format.

Avro has checked the type of every field by the time a record is decoded, so instances are built without a second
validation (about 2 microseconds instead of 15 for a span).
"""

from __future__ import annotations

import types
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar, Union, cast, get_args, get_origin

from ..packing import unpack_int32
from ..records import Record, RecordEnum, unchecked

R = TypeVar("R", bound=Record)
Converter = Callable[[Any], Any]


def from_avro(record: type[R], values: dict[str, Any]) -> R:
    """A record from values as fastavro decodes them by any version of its schema. ``values`` may be taken over.

    Fields that the version has not take their default, fields that the record has not are left out.
    """
    return cast("R", _decoder(record)(values))


def constructed(record: type[R], values: dict[str, Any]) -> R:
    """A record of values that are known to have the right types; a missing value takes its default.

    Nothing is checked (1 microsecond instead of 6 for a span): encoding refuses what Avro cannot hold. Mutable
    defaults are shared by all records made so, as records are not changed. ``values`` may be taken over.
    """
    construct, defaults, count = _construction(record)
    return cast("R", construct(values if len(values) == count else defaults | values))


@cache
def constructor_of(record: type[Record]) -> Callable[[dict[str, Any]], Record]:
    """A function that makes a ``record`` of all its fields' values, which it neither checks nor copies."""
    fields_set = set(record.model_fields)

    def construct(values: dict[str, Any]) -> Record:
        return unchecked(record, values, fields_set)

    return construct


@cache
def _construction(record: type[Record]) -> tuple[Callable[[dict[str, Any]], Record], dict[str, Any], int]:
    """Its constructor; the defaults of its fields; how many fields there are."""
    fields = record.model_fields
    defaults = {
        name: field.get_default(call_default_factory=True) for name, field in fields.items() if not field.is_required()
    }
    return constructor_of(record), defaults, len(fields)


@cache
def _decoder(record: type[Record]) -> Callable[[dict[str, Any]], Record]:
    special = [(n, c) for n, f in record.model_fields.items() if (c := _field_decoder(f.annotation)) is not None]
    fields = frozenset(record.model_fields)

    def decode(values: dict[str, Any]) -> Record:
        if not fields.issuperset(values):
            values = {name: value for name, value in values.items() if name in fields}
        for name, convert in special:
            value = values.get(name)
            if value is not None:
                values[name] = convert(value)
        return constructed(record, values)

    return decode


def _inner(annotation: Any) -> Any:
    if get_origin(annotation) in (Union, types.UnionType):
        return next(argument for argument in get_args(annotation) if argument is not type(None))
    return annotation


def _field_decoder(annotation: Any) -> Converter | None:
    annotation = _inner(annotation)
    if get_origin(annotation) is dict and get_args(annotation)[1] is Any:
        return _decode_attributes
    if get_origin(annotation) is list:
        item = _field_decoder(get_args(annotation)[0])
        return None if item is None else lambda values: [item(value) for value in values]
    if isinstance(annotation, type) and issubclass(annotation, RecordEnum):
        members = {member.value: member for member in annotation}
        return lambda symbol: members.get(symbol, members["unknown"])
    if isinstance(annotation, type) and issubclass(annotation, Record):
        return lambda value: _decoder(annotation)(value)
    return None


def _decode_attributes(attributes: dict[str, Any]) -> dict[str, Any]:
    for name, value in attributes.items():
        if type(value) is dict:
            attributes[name] = _decode_value(cast("dict[str, Any]", value))
    return attributes


def _decode_value(value: Any) -> Any:
    if type(value) is not dict:
        return value
    ((kind, content),) = cast("dict[str, Any]", value).items()
    if kind == "int32_le":
        return unpack_int32(content).tolist()
    if kind == "items":
        return [_decode_value(item) for item in content]
    return {name: _decode_value(item) for name, item in content.items()}
