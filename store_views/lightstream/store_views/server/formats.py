"""Forms of an answer, each written a piece at a time: never much more in memory than the rows as Arrow has them."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lightstream.schemas.errors import QueryError

from ..column_names import distinct_names
from .json_values import Integers, dump, json_pieces, parts, rows_of
from .query import QueryOutcome

__all__ = ["ARROW_STREAM", "AnswerFormat", "accepted_format", "pieces_of"]

ARROW_STREAM = "application/vnd.apache.arrow.stream"

GATHERED_BYTES = 64 * 1024
"""Pieces are sent together up to this size."""

ROW_GROUP_BYTES = 32 * 1024 * 1024


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
    held: list[bytes] = []
    size = 0
    for piece in pieces:
        held.append(piece)
        size += len(piece)
        if size >= GATHERED_BYTES:
            yield held.pop() if len(held) == 1 else b"".join(held)
            held.clear()
            size = 0
    yield b"".join(held)


def _ndjson(outcome: QueryOutcome, integers: Integers) -> Iterator[bytes]:
    names = distinct_names(outcome.columns)
    for part in parts(outcome.table):
        for row in rows_of(part):
            yield dump(dict(zip(names, row, strict=True)), integers)
            yield b"\n"


def _csv(outcome: QueryOutcome) -> Iterator[bytes]:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(distinct_names(outcome.columns))
    for part in parts(outcome.table):
        writer.writerows([_csv_value(value) for value in row] for row in rows_of(part))
        yield text.getvalue().encode("utf-8", errors="replace")
        text.seek(0)
        text.truncate()
    yield text.getvalue().encode("utf-8", errors="replace")


def _csv_value(value: Any) -> Any:
    """As in JSON, texts without their quotes."""
    if value is None or isinstance(value, str):
        return value
    return dump(value).decode().strip('"')


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
