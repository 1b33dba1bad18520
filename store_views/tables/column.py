"""Columns of a raw table, derived from the record model it stores."""

from __future__ import annotations

import types
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Union, get_args, get_origin

import pyarrow as pa

from lightstream.schemas.records import Record, RecordEnum
from lightstream.schemas.records.meanings import field_meanings


class Encoding(StrEnum):
    """Converts a record's value to a column's."""

    PLAIN = "plain"
    JSON = "json"
    INT32S = "int32s"
    FLOAT32S = "float32s"
    UINT8S = "uint8s"
    STRUCTS = "structs"
    MAP = "map"


@dataclass(frozen=True, slots=True)
class Column:
    """One column.

    Attributes:
        name: its name in SQL.
        sql_type: its DuckDB type.
        arrow_type: what Arrow batches carry.
        encoding: how values are converted.
        path: field names from the record to the value; all but the last are nested records, which may be ``None``.
        meaning: a sentence, as the record's docstring has it.
    """

    name: str
    sql_type: str
    arrow_type: pa.DataType
    encoding: Encoding
    path: tuple[str, ...]
    meaning: str


PACKED: dict[str, tuple[str, pa.DataType, Encoding]] = {
    "prompt_token_ids": ("INTEGER[]", pa.list_(pa.int32()), Encoding.INT32S),
    "response_token_ids": ("INTEGER[]", pa.list_(pa.int32()), Encoding.INT32S),
    "response_token_ends": ("INTEGER[]", pa.list_(pa.int32()), Encoding.INT32S),
    "response_logprobs": ("FLOAT[]", pa.list_(pa.float32()), Encoding.FLOAT32S),
    "response_mask": ("UTINYINT[]", pa.list_(pa.uint8()), Encoding.UINT8S),
}
"""Packed little-endian bytes by field name; their bytes are Arrow's own layout, so nothing is converted."""

_PRIMITIVES: dict[Any, tuple[str, pa.DataType]] = {
    bool: ("BOOLEAN", pa.bool_()),
    int: ("BIGINT", pa.int64()),
    float: ("DOUBLE", pa.float64()),
    str: ("VARCHAR", pa.string()),
    bytes: ("BLOB", pa.binary()),
}


def columns_of(
    record: type[Record], *, omit: tuple[str, ...] = (), prefixes: dict[str, str] | None = None
) -> tuple[Column, ...]:
    """A column per field, in the model's order.

    Nested records are spread over columns of their own, with the prefix that ``prefixes`` names for the field (none
    where it is absent). Numbers by name become a map, and lists of records lists of structs, or JSON where a field has
    no fixed type.

    Raises:
        TypeError: a field has a type that no rule maps, or two columns would have one name.
    """
    columns = tuple(_spread(record, (), "", omit, prefixes or {}))
    names = [column.name for column in columns]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise TypeError(f"{record.__name__} would have two columns each for {sorted(twice)}; give a prefix")
    return columns


def _spread(
    record: type[Record], path: tuple[str, ...], prefix: str, omit: tuple[str, ...], prefixes: dict[str, str]
) -> Iterator[Column]:
    meanings = field_meanings(record)
    for name, field in record.model_fields.items():
        if name in omit:
            continue
        annotation = _without_none(field.annotation)
        if isinstance(annotation, type) and issubclass(annotation, Record):
            yield from _spread(annotation, (*path, name), prefix + prefixes.get(name, ""), omit, prefixes)
            continue
        sql_type, arrow_type, encoding = PACKED.get(name) or _type_of(annotation)
        yield Column(prefix + name, sql_type, arrow_type, encoding, (*path, name), meanings.get(name, ""))


def _type_of(annotation: Any) -> tuple[str, pa.DataType, Encoding]:
    scalar = _scalar(annotation)
    if scalar is not None:
        return *scalar, Encoding.PLAIN
    if get_origin(annotation) is dict:
        return _map(get_args(annotation)[1]) or ("VARCHAR", pa.string(), Encoding.JSON)
    if get_origin(annotation) is list:
        item = get_args(annotation)[0]
        inner = _scalar(item)
        if inner is not None:
            return f"{inner[0]}[]", pa.list_(inner[1]), Encoding.PLAIN
        struct = _struct(item)
        if struct is None:
            return "VARCHAR", pa.string(), Encoding.JSON
        return f"{struct[0]}[]", pa.list_(struct[1]), Encoding.STRUCTS
    raise TypeError(f"no column type for {annotation!r}")


def _scalar(annotation: Any) -> tuple[str, pa.DataType] | None:
    annotation = _without_none(annotation)
    if isinstance(annotation, type) and issubclass(annotation, RecordEnum):
        return _PRIMITIVES[str]
    return _PRIMITIVES.get(annotation)


def _map(value: Any) -> tuple[str, pa.DataType, Encoding] | None:
    """Type of a dictionary of numbers by name, ``None`` for any other."""
    if value not in (int, float):
        return None
    sql_type, arrow_type = _PRIMITIVES[value]
    return f"MAP(VARCHAR, {sql_type})", pa.map_(pa.string(), arrow_type), Encoding.MAP


def _struct(record: type[Record]) -> tuple[str, pa.DataType] | None:
    """Type of a record whose fields are all scalars, ``None`` for any other."""
    fields: list[tuple[str, str, pa.DataType]] = []
    for name, field in record.model_fields.items():
        scalar = _scalar(field.annotation)
        if scalar is None:
            return None
        fields.append((name, *scalar))
    sql = ", ".join(f'"{name}" {sql_type}' for name, sql_type, _ in fields)
    return f"STRUCT({sql})", pa.struct([pa.field(name, arrow_type) for name, _, arrow_type in fields])


def _without_none(annotation: Any) -> Any:
    if get_origin(annotation) in (Union, types.UnionType):
        return next(argument for argument in get_args(annotation) if argument is not type(None))
    return annotation
