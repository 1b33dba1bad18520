"""Decoded records to Arrow tables, column by column."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, cast

import pyarrow as pa

from lightstream.schemas.records import Record

from ..tables import Column, Encoding, RawTable

Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class LoggedRecord:
    """A decoded record and where it was in the log."""

    record: Record
    partition: int
    offset: int
    logged_unix_nano: int


def arrow_table(table: RawTable, logged: Sequence[LoggedRecord]) -> pa.Table:
    """Rows of ``table`` for these records, in their order. The records are unchanged."""
    parents = [_values_of(item.record) for item in logged]
    places = [(item.partition, item.offset, item.logged_unix_nano) for item in logged]
    if table.items is None:
        rows, counts = parents, None
    else:
        lists = [cast("list[Record]", values[table.items]) for values in parents]
        rows = [_values_of(item) for items in lists for item in items]
        counts = [len(items) for items in lists]
        places = [place for place, count in zip(places, counts, strict=True) for _ in range(count)]
        parents = [values for values, count in zip(parents, counts, strict=True) for _ in range(count)]
    partitions, offsets, times = zip(*places, strict=True) if places else ((), (), ())
    arrays: list[pa.Array[Any]] = [
        pa.array(partitions, pa.int32()),
        pa.array(offsets, pa.int64()),
        pa.array(times, pa.int64()),
    ]
    arrays += _arrays(table.parent_columns, parents)
    if counts is not None:
        arrays.append(pa.array([index for count in counts for index in range(count)], pa.int32()))
    arrays += _arrays(table.columns, rows)
    if table.derive is not None:
        derived = [table.derive(item.record) for item in logged]
        values = zip(*derived, strict=True) if derived else [()] * len(table.derived)
        arrays += [pa.array(v, column.arrow_type) for column, v in zip(table.derived, values, strict=True)]
    return pa.Table.from_arrays(arrays, names=[column.name for column in table.all_columns])


def _values_of(record: Record) -> Values:
    """The record's own dictionary, not a copy."""
    return record.__dict__


def _arrays(columns: Sequence[Column], rows: list[Values]) -> list[pa.Array[Any]]:
    """One array per column; nested records are looked up once per level, not once per column."""
    at: dict[tuple[str, ...], list[Values | None]] = {(): cast("list[Values | None]", rows)}
    return [_array(column, _values(at, column.path)) for column in columns]


def _values(at: dict[tuple[str, ...], list[Values | None]], path: tuple[str, ...]) -> list[Any]:
    *parent, name = path
    holders = at.get(tuple(parent))
    if holders is None:
        nested = _values(at, tuple(parent))
        holders = [None if record is None else _values_of(record) for record in nested]
        at[tuple(parent)] = holders
    return [None if values is None else values[name] for values in holders]


def _array(column: Column, values: list[Any]) -> pa.Array[Any]:
    if column.encoding is Encoding.PLAIN:
        return pa.array(values, column.arrow_type)
    if column.encoding is Encoding.JSON:
        return pa.array([None if value is None else json_text(value) for value in values], pa.string())
    if column.encoding is Encoding.STRUCTS:
        structs = [None if value is None else [item.__dict__ for item in value] for value in values]
        return pa.array(structs, column.arrow_type)
    if column.encoding is Encoding.MAP:
        return pa.array([None if value is None else list(value.items()) for value in values], column.arrow_type)
    return _packed(column.arrow_type, values, 1 if column.encoding is Encoding.UINT8S else 4)


def _packed(arrow_type: pa.DataType, values: list[bytes | None], item_bytes: int) -> pa.Array[Any]:
    """Lists of numbers from packed bytes, without looking at a number.

    Bytes that are not a whole number of items become NULL: the assembler drops such a call with the reason.
    """
    kept = [value if value is not None and len(value) % item_bytes == 0 else None for value in values]
    ends = accumulate((len(value) // item_bytes if value is not None else 0 for value in kept), initial=0)
    data = b"".join([value for value in kept if value is not None])
    item_type = cast("pa.ListType[Any]", arrow_type).value_type
    items = pa.Array.from_buffers(item_type, len(data) // item_bytes, [None, pa.py_buffer(data)])
    mask = pa.array([value is None for value in kept], pa.bool_())
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), items, mask=mask)


def json_text(value: Any) -> str:
    """``value`` as strict JSON: bytes as hex text, numbers that JSON lacks as text (``"NaN"``, ``"Infinity"``)."""
    if not value:
        return "{}" if isinstance(value, dict) else "[]"
    try:
        return _encode(value)
    except ValueError:
        return _encode(_finite(value))


def _plain(value: Any) -> Any:
    if isinstance(value, Record):
        return dict(value.__dict__)
    if isinstance(value, bytes):
        return value.hex()
    raise TypeError(f"no JSON for {type(value).__name__}")


_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, default=_plain).encode


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    if isinstance(value, (Record, bytes)):
        return _finite(_plain(value))
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in cast("Mapping[str, Any]", value).items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in cast("list[Any]", value)]
    return value
