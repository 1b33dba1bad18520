"""Forms of an answer, each written a piece at a time: never much more in memory than the rows as Arrow has them."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from enum import StrEnum
from typing import Any, Literal, TypeAlias, cast

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from lightstream.schemas.errors import QueryError

from ..column_names import distinct_names
from .statement import QueryOutcome

ARROW_STREAM = "application/vnd.apache.arrow.stream"

GATHERED_BYTES = 64 * 1024
"""Pieces are sent together up to this size."""

ROW_GROUP_BYTES = 32 * 1024 * 1024

Integers: TypeAlias = Literal["number", "text"]
"""Form of integers that a double has not exactly (beyond 2^53): JSON numbers all the same, or text."""

PIECE_BYTES = 256 * 1024
"""Of Arrow, of which Python objects are made at once: these take some ten times as much."""

EXACT_MAX = 2**53 - 1
"""JavaScript's ``Number.MAX_SAFE_INTEGER``."""


class AnswerFormat(StrEnum):
    """The form of an answer."""

    JSON = "json"
    NDJSON = "ndjson"
    CSV = "csv"
    PARQUET = "parquet"
    ARROW = "arrow"

    @property
    def media_type(self) -> str:
        """Its name in ``Accept`` and ``Content-Type``."""
        return _MEDIA_TYPES[self]


_MEDIA_TYPES = {
    AnswerFormat.JSON: "application/json",
    AnswerFormat.NDJSON: "application/x-ndjson",
    AnswerFormat.CSV: "text/csv",
    AnswerFormat.PARQUET: "application/vnd.apache.parquet",
    AnswerFormat.ARROW: ARROW_STREAM,
}


def accepted_format(accept: str) -> AnswerFormat:
    """Return the first form that an ``Accept`` header names; JSON where it names none of them."""
    named = (part.partition(";")[0].strip().lower() for part in accept.split(","))
    known = {media_type: answer_format for answer_format, media_type in _MEDIA_TYPES.items()}
    return next((known[name] for name in named if name in known), AnswerFormat.JSON)


def pieces_of(
    outcome: QueryOutcome, answer_format: AnswerFormat, integers: Integers = "number", *, rebuilding: bool = False
) -> Iterator[bytes]:
    """The answer, in pieces of some 64 KiB.

    Args:
        integers: for JSON and NDJSON.
        rebuilding: for JSON.

    Raises:
        QueryError: at the first piece: the form has no such values.
    """
    match answer_format:
        case AnswerFormat.JSON:
            pieces = json_pieces(
                outcome.columns,
                outcome.types,
                outcome.table,
                truncated=outcome.truncated,
                rebuilding=rebuilding,
                integers=integers,
            )
        case AnswerFormat.NDJSON:
            pieces = _ndjson(outcome, integers)
        case AnswerFormat.CSV:
            pieces = _csv(outcome)
        case AnswerFormat.PARQUET:
            pieces = _parquet(_distinct(outcome))
        case AnswerFormat.ARROW:
            pieces = _arrow(_distinct(outcome))
    return _gathered(pieces)


def _distinct(outcome: QueryOutcome) -> pa.Table:
    """The answer with a name for each column: readers of Parquet, and polars, take no two of one name."""
    return outcome.table.rename_columns(distinct_names(outcome.columns))


def _gathered(pieces: Iterator[bytes]) -> Iterator[bytes]:
    gathered: list[bytes] = []
    size = 0
    for piece in pieces:
        gathered.append(piece)
        size += len(piece)
        if size >= GATHERED_BYTES:
            yield gathered.pop() if len(gathered) == 1 else b"".join(gathered)
            gathered.clear()
            size = 0
    yield b"".join(gathered)


def _ndjson(outcome: QueryOutcome, integers: Integers) -> Iterator[bytes]:
    names = distinct_names(outcome.columns)
    for part in _parts(outcome.table):
        for row in _rows_of(part):
            yield _dump(dict(zip(names, row, strict=True)), integers)
            yield b"\n"


def _csv(outcome: QueryOutcome) -> Iterator[bytes]:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(distinct_names(outcome.columns))
    for part in _parts(outcome.table):
        writer.writerows([_csv_value(value) for value in row] for row in _rows_of(part))
        yield text.getvalue().encode("utf-8", errors="replace")
        text.seek(0)
        text.truncate()
    yield text.getvalue().encode("utf-8", errors="replace")


def _csv_value(value: Any) -> Any:
    """As in JSON, texts without their quotes."""
    if value is None or isinstance(value, str):
        return value
    return _dump(value).decode().strip('"')


class _Sink(io.RawIOBase):
    """Keeps what a writer writes until it is taken."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._pieces.append(bytes(data))
        return len(data)

    def take(self) -> Iterator[bytes]:
        pieces, self._pieces = self._pieces, []
        return iter(pieces)


def _arrow(table: pa.Table) -> Iterator[bytes]:
    sink = _Sink()
    with pa.ipc.new_stream(pa.PythonFile(sink, mode="w"), table.schema) as writer:
        for batch in table.to_batches():
            writer.write_batch(batch)
            yield from sink.take()
    yield from sink.take()


def _parquet(table: pa.Table) -> Iterator[bytes]:
    sink = _Sink()
    try:
        with pq.ParquetWriter(pa.PythonFile(sink, mode="w"), table.schema, compression="zstd") as writer:
            for batches in _together(table.to_batches(), ROW_GROUP_BYTES):
                writer.write_table(pa.Table.from_batches(batches, table.schema))
                yield from sink.take()
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:
        raise QueryError(f"Parquet has no such values: {error}.", next_step="Ask for Arrow, or cast them.") from error
    yield from sink.take()


def _together(batches: Sequence[pa.RecordBatch], bytes_max: int) -> Iterator[list[pa.RecordBatch]]:
    group: list[pa.RecordBatch] = []
    for batch in batches:
        group.append(batch)
        if sum(one.nbytes for one in group) >= bytes_max:
            yield group
            group = []
    if group:
        yield group


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

    Maps become objects, bytes hex text, times ISO text, intervals text as DuckDB writes it, whole decimals integers,
    other decimals numbers where a double has them exactly and text where not, and numbers that JSON lacks text
    (``"NaN"``). Values with a date that Python lacks (before the year 1, after 9999) become text,
    as DuckDB writes them.
    """
    head = f'{{"columns": {_text(columns, _plain)}, "types": {_text(types, _plain)}, "rows": ['
    yield head.encode("utf-8", errors="replace")
    separator = ""
    for part in _parts(table):
        yield separator.encode()
        if part.num_rows == 1 and part.nbytes > PIECE_BYTES:
            yield from _row_pieces(part, integers)
        else:
            yield _dump(_rows_of(part), integers)[1:-1]
        separator = ", "
    yield f'], "truncated": {_text(truncated, _plain)}, "rebuilding": {_text(rebuilding, _plain)}}}'.encode()


def _parts(table: pa.Table, bytes_max: int = PIECE_BYTES) -> Iterator[pa.RecordBatch]:
    """The table's rows in order, some ``bytes_max`` at a time and at least one row."""
    for batch in table.to_batches():
        step = max(1, batch.num_rows * bytes_max // max(batch.nbytes, 1))
        for start in range(0, batch.num_rows, step):
            yield batch.slice(start, step)


def _rows_of(part: pa.RecordBatch) -> list[tuple[Any, ...]]:
    """The rows as Python values."""
    return list(zip(*map(_values, part.columns), strict=True))


def _dump(value: Any, integers: Integers = "number") -> bytes:
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
        yield _dump(_values(column)[0], integers)
        return
    items = pa.Table.from_arrays([cast("pa.ListArray[Any]", column).flatten()], names=["item"])
    separator = b"["
    for part in _parts(items):
        yield separator
        if part.num_rows == 1:
            yield from _value_pieces(part.column(0), integers)
        else:
            yield _dump(_values(part.column(0)), integers)[1:-1]
        separator = b", "
    yield b"]"


def _text(value: Any, plain: Callable[[Any], Any]) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, default=plain)
    except (ValueError, TypeError):
        return json.dumps(_safe(value, plain), ensure_ascii=False, allow_nan=False)


def _values(column: pa.Array[Any]) -> list[Any]:
    if pa.types.is_interval(column.type):  # Python has none with months
        return _texts(column)
    try:
        values: list[Any] = column.to_pylist(maps_as_pydicts="lossy")
        return _with_interval_texts(values) if _has_intervals(column.type) else values
    except (OverflowError, ValueError):
        return [_value_or_text(*pair) for pair in zip(column, _texts(column), strict=True)]


def _has_intervals(kind: pa.DataType) -> bool:
    return pa.types.is_interval(kind) or any(_has_intervals(kind.field(i).type) for i in range(kind.num_fields))


def _with_interval_texts(value: Any) -> Any:
    """The value with text in place of each interval in it."""
    if isinstance(value, pa.MonthDayNano):
        (text,) = _texts(pa.array([value], pa.month_day_nano_interval()))
        return text
    if isinstance(value, dict):
        return {key: _with_interval_texts(item) for key, item in value.items()}
    return [_with_interval_texts(item) for item in value] if isinstance(value, list) else value


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
        return _number(value)
    if isinstance(value, bytes):
        return value.hex()
    isoformat = getattr(value, "isoformat", None)
    return isoformat() if callable(isoformat) else str(value)


def _number(value: Decimal) -> int | float | str:
    if value == value.to_integral_value():
        return int(value)
    number = float(value)
    return number if Decimal(repr(number)) == value else str(value)


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
