"""Arrow values as JSON, a piece at a time."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any, Literal, TypeAlias, cast

import duckdb
import pyarrow as pa

__all__ = ["Integers", "dump", "json_answer", "json_pieces", "parts", "rows_of"]

Integers: TypeAlias = Literal["number", "text"]
"""Form of integers that a double has not exactly (beyond 2^53): JSON numbers all the same, or text."""

PIECE_BYTES = 256 * 1024
"""Of Arrow, of which Python objects are made at once: these take some ten times as much."""

EXACT_MAX = 2**53 - 1
"""JavaScript's ``Number.MAX_SAFE_INTEGER``."""


def json_answer(
    columns: list[str], types: list[str], table: pa.Table, *, truncated: bool, rebuilding: bool = False
) -> bytes:
    """The answer's JSON as a whole: see :func:`json_pieces`."""
    return b"".join(json_pieces(columns, types, table, truncated=truncated, rebuilding=rebuilding))


def json_pieces(
    columns: list[str],
    types: list[str],
    table: pa.Table,
    *,
    truncated: bool,
    rebuilding: bool = False,
    integers: Integers = "number",
) -> Iterator[bytes]:
    """The answer's JSON: ``{"columns", "types", "rows", "truncated", "rebuilding"}``, in pieces that take little
    memory each.

    Maps become objects, bytes hex text, times ISO text, and intervals text as DuckDB writes them. Whole decimals
    become integers, other decimals numbers, or text where a double would lose digits. Numbers that JSON lacks become
    text (``"NaN"``), and so do values with a date that Python lacks (before the year 1, after 9999).
    """
    head = f'{{"columns": {_text(columns, _plain)}, "types": {_text(types, _plain)}, "rows": ['
    yield head.encode("utf-8", errors="replace")
    separator = ""
    for part in parts(table):
        yield separator.encode()
        if part.num_rows == 1 and part.nbytes > PIECE_BYTES:
            yield from _row_pieces(part, integers)
        else:
            yield dump(rows_of(part), integers)[1:-1]
        separator = ", "
    yield f'], "truncated": {_text(truncated, _plain)}, "rebuilding": {_text(rebuilding, _plain)}}}'.encode()


def parts(table: pa.Table, bytes_max: int = PIECE_BYTES) -> Iterator[pa.RecordBatch]:
    """The table's rows in order, some ``bytes_max`` at a time and at least one row."""
    for batch in table.to_batches():
        step = max(1, batch.num_rows * bytes_max // max(batch.nbytes, 1))
        for start in range(0, batch.num_rows, step):
            yield batch.slice(start, step)


def rows_of(part: pa.RecordBatch) -> list[tuple[Any, ...]]:
    """The rows as Python values."""
    return list(zip(*map(_values, part.columns), strict=True))


def dump(value: Any, integers: Integers = "number") -> bytes:
    """One value, or a list of rows, as JSON."""
    plain = _plain
    if integers == "text":
        value, plain = _exact(value), _exact_plain
    return _text(value, plain).encode("utf-8", errors="replace")


def _row_pieces(row: pa.RecordBatch, integers: Integers) -> Iterator[bytes]:
    """A row that is large: its lists are not made into Python objects as a whole."""
    for index, column in enumerate(row.columns):
        yield b", " if index else b"["
        yield from _value_pieces(column, integers)
    yield b"]"


def _value_pieces(column: pa.Array[Any], integers: Integers) -> Iterator[bytes]:
    """The only value of a column."""
    if column.nbytes <= PIECE_BYTES or not pa.types.is_list(column.type) or column.null_count:
        yield dump(_values(column)[0], integers)
        return
    items = pa.Table.from_arrays([cast("pa.ListArray[Any]", column).flatten()], names=["item"])
    separator = b"["
    for part in parts(items):
        yield separator
        if part.num_rows == 1:
            yield from _value_pieces(part.column(0), integers)
        else:
            yield dump(_values(part.column(0)), integers)[1:-1]
        separator = b", "
    yield b"]"


def _text(value: Any, plain: Callable[[Any], Any]) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, default=plain)
    except (ValueError, TypeError):
        return json.dumps(_safe(value, plain), ensure_ascii=False, allow_nan=False)


def _values(column: pa.Array[Any]) -> list[Any]:
    try:
        values: list[Any] = column.to_pylist(maps_as_pydicts="lossy")
        return [_with_intervals(value) for value in values] if _has_interval(column.type) else values
    except (OverflowError, ValueError):
        return [_value_or_text(*pair) for pair in zip(column, _texts(column), strict=True)]


def _has_interval(kind: pa.DataType) -> bool:
    """Whether values of a type are intervals, or have some within."""
    return "interval" in str(kind)


def _with_intervals(value: Any) -> Any:
    """A value with text in place of intervals, which Python has as tuples of months, days and nanoseconds."""
    if isinstance(value, pa.MonthDayNano):
        return _interval(value)
    if isinstance(value, dict):
        return {key: _with_intervals(item) for key, item in value.items()}
    if isinstance(value, list):
        items: list[Any] = value
        return [_with_intervals(item) for item in items]
    return value


def _interval(value: Any) -> str:
    """As DuckDB writes it: ``1 year 2 months 3 days 00:00:12.105128``; each part has its own sign."""
    months, days, nanos = value
    sign = -1 if months < 0 else 1
    years, months = (sign * n for n in divmod(abs(months), 12))
    parts = [
        f"{n} {unit}{'' if abs(n) == 1 else 's'}"
        for n, unit in ((years, "year"), (months, "month"), (days, "day"))
        if n
    ]
    if nanos or not parts:
        seconds, micros = divmod(abs(nanos) // 1000, 1_000_000)
        clock = f"{'-' if nanos < 0 else ''}{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
        parts.append(f"{clock}.{micros:06}".rstrip("0") if micros else clock)
    return " ".join(parts)


def _value_or_text(value: pa.Scalar[Any], text: str | None) -> Any:
    try:
        return value.as_py(maps_as_pydicts="lossy")
    except (OverflowError, ValueError):
        return text


def _texts(column: pa.Array[Any]) -> list[str | None]:
    with duckdb.connect() as connection:
        rows = (
            connection.from_arrow(pa.Table.from_arrays([column], names=["value"]))
            .project("CAST(value AS VARCHAR)")
            .fetchall()
        )
    return [text for (text,) in rows]


def _plain(value: Any) -> Any:
    if isinstance(value, Decimal):
        if value == value.to_integral_value():
            return int(value)
        number = float(value)
        return number if Decimal(repr(number)) == value else str(value)
    if isinstance(value, bytes):
        return value.hex()
    isoformat = getattr(value, "isoformat", None)
    return isoformat() if callable(isoformat) else str(value)


def _exact_plain(value: Any) -> Any:
    return _exact(_plain(value))


def _exact(value: Any) -> Any:
    """With text in place of integers that a double does not have."""
    if type(value) is int:
        return value if -EXACT_MAX <= value <= EXACT_MAX else str(value)
    if isinstance(value, dict):
        return {key: _exact(item) for key, item in value.items()}
    return [_exact(item) for item in cast("list[Any]", value)] if isinstance(value, (list, tuple)) else value


def _safe(value: Any, plain: Callable[[Any], Any]) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    if isinstance(value, dict):
        return {str(_safe(key, plain)): _safe(item, plain) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_safe(item, plain) for item in cast("list[Any]", value)]
    return value if isinstance(value, (str, int, float, bool)) or value is None else plain(value)
