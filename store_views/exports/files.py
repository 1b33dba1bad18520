"""Files that appear whole or not at all."""

from __future__ import annotations

import json
import os
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lightstream.schemas.records import Trajectory

from .arrow_rows import RowLevel, arrow_batches, schema_of


@contextmanager
def _whole(path: Path) -> Generator[Path, None, None]:
    """A name to write under; renamed to ``path`` at the end, removed after an error. ``path`` is replaced."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_parquet(
    trajectories: Iterable[Trajectory], path: Path, level: RowLevel = "call", tokens_max: int | None = None
) -> int:
    """Write rows as Parquet (zstd), a row group per batch; returns how many.

    Raises:
        SettingsError: there is no such level.
    """
    with _whole(path) as temporary, pq.ParquetWriter(temporary, schema_of(level), compression="zstd") as writer:
        rows = 0
        for batch in arrow_batches(trajectories, level, tokens_max):
            writer.write_batch(batch)
            rows += batch.num_rows
    return rows


def write_arrow(
    trajectories: Iterable[Trajectory], path: Path, level: RowLevel = "call", tokens_max: int | None = None
) -> int:
    """Write rows as an Arrow IPC file (Feather 2, zstd), to be mapped into memory; returns how many.

    Raises:
        SettingsError: there is no such level.
    """
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with _whole(path) as temporary, pa.ipc.new_file(str(temporary), schema_of(level), options=options) as writer:
        rows = 0
        for batch in arrow_batches(trajectories, level, tokens_max):
            writer.write_batch(batch)
            rows += batch.num_rows
    return rows


def write_json_lines(values: Iterable[Mapping[str, Any]], path: Path) -> int:
    """Write one JSON object per line, lone surrogates of its text as ``?``; returns how many."""
    with _whole(path) as temporary, temporary.open("w", encoding="utf-8", errors="replace") as file:
        lines = 0
        for value in values:
            file.write(json.dumps(value, ensure_ascii=False) + "\n")
            lines += 1
    return lines
