"""Opens the view's file in DuckDB, locks it for one process, and keeps beside it the offsets that readers have seen.

The file has small row groups, and no write-ahead log, since the log it is made from is one.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb

from lightstream.runtime.files import private_folder
from lightstream.runtime.priority import run_behind
from lightstream.schemas.errors import ServiceUnavailableError

from ..sql_literal import sql_literal
from .positions import Place

CATALOG = "lightstream"
"""The file's name in SQL."""

ROW_GROUP_ROWS = 2048
"""The least there is. A checkpoint joins what came since the last one to row groups that are not full, which means to
compress these again: with DuckDB's 122,880 rows, of LLM spans of 640 tokens 400 MB, that took up to 6.7 s of processor,
with 8,192 up to 1.4 s, with these never over 0.2 s. Queries of few rows are quicker, too: more can be left out. The
price is disk: twice as much as with 8,192 where rows are short."""

SPILL_BYTES_MAX = 20 * 10**9
SPILL_SHARE_OF_FREE_MAX = 0.5
"""Of disk, besides the file, for what queries spill: at most so much, and at most half of what is free at the start. A
careless query fails there; DuckDB's default lets it fill nine tenths of the disk."""

LATE_MATERIALISATION_ROWS_MAX = 10_000
"""Up to so many rows, ``ORDER BY … LIMIT`` reads the columns that sort first and all others of the rows that remain. At
DuckDB's default of 50, a page of 100 in an order that no row group helps with read every input: 150 ms of a million
rollouts instead of 30."""

WRONG_OPTIMIZERS = "row_group_pruner"
"""DuckDB must not do this. For ``ORDER BY … LIMIT`` this one leaves out groups of rows by the smallest and largest
values of others, also where the row that had such a value is deleted, or was committed after the query began (2.0.0):
the first of all rollouts came out as another, or as none."""

NEVER = "1000TB"
"""Checkpoints are made when the view says so, not while somebody waits for a transaction."""

WORKERS_NICE = 5
"""DuckDB's own threads are behind ours: a statement of anybody's keeps them busy, while rows come in."""

MEMORY_SHARE_OF_MACHINE_MAX = 0.5
"""The other half is for what else runs: broker, worker, Runners."""
MEMORY_BYTES_MAX = 4 * 1024**3
"""A million rollouts with their calls are answered about in less than that, without going to disk."""
CONTAINER_LIMIT_FILE = Path("/sys/fs/cgroup/memory.max")
"""Of a container (control groups, version 2): a number of bytes, or ``max``."""


def open_file(path: Path, memory_bytes_max: int, spill: Path | None = None) -> duckdb.DuckDBPyConnection:
    """The file, made if missing, as the default for unqualified names.

    Transactions are in memory until the next checkpoint, which writes them all or none of them. DuckDB's own log would
    repeat, for each transaction, the lists of up to 2,048 rows before its own (100 times what came, by ten rows each).

    Args:
        memory_bytes_max: for caches and queries; what a query needs beyond goes to disk.
        spill: the folder for that; unset means :func:`spill_folder`.
    """
    config: dict[str, Any] = {
        "python_enable_replacements": False,
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "allow_community_extensions": False,
        "checkpoint_threshold": NEVER,
        "memory_limit": f"{memory_bytes_max}B",
        "temp_directory": str(spill or spill_folder(path)),
        "late_materialization_max_rows": LATE_MATERIALISATION_ROWS_MAX,
        "disabled_optimizers": WRONG_OPTIMIZERS,
    }
    # In a thread of that priority, which DuckDB's own inherit: they work for whoever asks.
    connection = run_behind(
        lambda: duckdb.connect(":memory:", config=config), WORKERS_NICE, "lightstream-open"
    ).result()
    options = f"ROW_GROUP_SIZE {ROW_GROUP_ROWS}, RECOVERY_MODE no_wal_writes"
    try:
        connection.execute(f"ATTACH {sql_literal(str(path))} AS {CATALOG} ({options})")
        connection.execute(f"USE {CATALOG}")
        # Beside `temp_directory` in the configuration, this would be told back, and not be kept to (2.0.0).
        connection.execute(f"SET GLOBAL max_temp_directory_size = '{_spill_bytes_max(path.parent)}B'")
        connection.execute("SET GLOBAL TimeZone = 'UTC'")  # of `now()`, which times of views are compared with
    except BaseException:
        connection.close()
        raise
    return connection


def lock_down(connection: duckdb.DuckDBPyConnection) -> None:
    """Let no statement read other files or change settings, from now on."""
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


def spill_folder(path: Path, number: int = 0) -> Path:
    """Return the folder for data of a query beyond its memory, of the first file at this path or a later one."""
    return path.with_name(f"{path.name}.tmp{number or ''}")


def remove(path: Path) -> None:
    """Delete a file, or a folder with its contents, if it is there."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _spill_bytes_max(folder: Path) -> int:
    return min(SPILL_BYTES_MAX, int(shutil.disk_usage(folder).free * SPILL_SHARE_OF_FREE_MAX))


def default_memory_bytes(limit_file: Path = CONTAINER_LIMIT_FILE) -> int:
    """Half of the machine's memory or of the container's, whichever is less, and 4 GiB at most."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(int(min(machine, _container_bytes(limit_file)) * MEMORY_SHARE_OF_MACHINE_MAX), MEMORY_BYTES_MAX)


def _container_bytes(limit_file: Path) -> float:
    try:
        text = limit_file.read_text(encoding="ascii").strip()
    except OSError:
        return float("inf")  # no container, or another system
    return int(text) if text.isdigit() else float("inf")


class FileLock:
    """An exclusive lock next to ``path`` (``<path>.lock``), given back by the system when the process dies.

    Raises:
        ServiceUnavailableError: another process holds it; names that process.
    """

    def __init__(self, path: Path) -> None:
        self._path = path.with_name(path.name + ".lock")
        private_folder(self._path.parent)
        self._handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(self._handle, 32, 0).decode("ascii", errors="replace").strip() or "unknown"
            os.close(self._handle)
            raise ServiceUnavailableError(
                f"the view {path} is owned by process {holder}.",
                next_step="Query it with `lightstream sql`, or stop that process, or choose another "
                "LIGHTSTREAM_DATA_DIR.",
            ) from error
        os.ftruncate(self._handle, 0)
        os.pwrite(self._handle, f"{os.getpid()}\n".encode("ascii"), 0)

    @property
    def is_held(self) -> bool:
        """Until it is given back."""
        return self._handle >= 0

    def release(self) -> None:
        """Give the lock back. Safe to call twice."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1


class ShownFile:
    """Offsets in a small file, next to the view's (``<path>.shown``). Survives the process, not always the machine.

    Args:
        path: of the view's file.
    """

    def __init__(self, path: Path) -> None:
        self._handle = os.open(path.with_name(path.name + ".shown"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def read(self) -> dict[Place, int]:
        """Place -> next offset, as last written; nothing where that cannot be read."""
        line, newline, _ = os.pread(self._handle, os.fstat(self._handle).st_size, 0).partition(b"\n")
        try:
            rows = json.loads(line) if newline else []
            return {(str(topic), int(partition)): int(offset) for topic, partition, offset in rows}
        except (ValueError, TypeError):
            return {}

    def write(self, next_offsets: Mapping[Place, int]) -> None:
        """Replace the contents: some 50 microseconds, since nothing waits for the disk."""
        rows = [[*place, offset] for place, offset in next_offsets.items()]
        os.pwrite(self._handle, json.dumps(rows).encode() + b"\n", 0)

    def close(self) -> None:
        """Safe to call twice."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1
