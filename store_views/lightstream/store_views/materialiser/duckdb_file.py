"""How the DuckDB file is opened: small row groups, and no write-ahead log, since the log it is made from is one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb

from ..sql_literal import sql_literal

__all__ = ["CATALOG", "open_file", "spill_folder"]

CATALOG = "lightstream"
"""The file's name in SQL."""

ROW_GROUP_ROWS = 2048
"""The least there is. A checkpoint joins what came since the last one to row groups that are not full, which means to
compress these again: with DuckDB's 122,880 rows, of LLM spans of 640 tokens 400 MB, that took up to 6.7 s of processor,
with 8,192 up to 1.4 s, with these never over 0.2 s. Queries of few rows are quicker, too: more can be left out. The
price is disk: twice as much as with 8,192 where rows are short."""

SPILL_BYTES_MAX = "20GB"
"""Of disk, besides the file. A careless query fails there; DuckDB's default lets it fill nine tenths of the disk."""

LATE_MATERIALISATION_ROWS_MAX = 10_000
"""Up to so many rows, ``ORDER BY … LIMIT`` reads the columns that sort first and all others of the rows that remain. At
DuckDB's default of 50, a page of 100 in an order that no row group helps with read every input: 150 ms of a million
rollouts instead of 30."""

WRONG_OPTIMIZERS = "row_group_pruner"
"""What DuckDB must not do. For ``ORDER BY … LIMIT`` this one leaves out groups of rows by the smallest and largest
values of others, also where the row that had such a value is deleted, or was committed after the query began (2.0.0):
the first of all rollouts came out as another, or as none."""

NEVER = "1000TB"
"""Checkpoints are made when the view says so, not while somebody waits for a transaction."""


def open_file(path: Path, memory_bytes_max: int) -> duckdb.DuckDBPyConnection:
    """The file, made if missing, as what unqualified names mean.

    Transactions are in memory until the next checkpoint, which writes them all or none of them. DuckDB's own log would
    repeat, for each transaction, the lists of up to 2,048 rows before its own (100 times what came, by ten rows each).

    Args:
        memory_bytes_max: for caches and queries; what a query needs beyond goes to :func:`spill_folder`.
    """
    config: dict[str, Any] = {
        "python_enable_replacements": False,
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "allow_community_extensions": False,
        "checkpoint_threshold": NEVER,
        "memory_limit": f"{memory_bytes_max}B",
        "temp_directory": str(spill_folder(path)),
        "max_temp_directory_size": SPILL_BYTES_MAX,
        "late_materialization_max_rows": LATE_MATERIALISATION_ROWS_MAX,
        "disabled_optimizers": WRONG_OPTIMIZERS,
    }
    connection = duckdb.connect(":memory:", config=config)
    options = f"ROW_GROUP_SIZE {ROW_GROUP_ROWS}, RECOVERY_MODE no_wal_writes"
    try:
        connection.execute(f"ATTACH {sql_literal(str(path))} AS {CATALOG} ({options})")
        connection.execute(f"USE {CATALOG}")
        connection.execute("SET GLOBAL TimeZone = 'UTC'")  # of `now()`, which times of views are compared with
    except BaseException:
        connection.close()
        raise
    return connection


def spill_folder(path: Path) -> Path:
    """Where queries put what does not fit in memory."""
    return path.with_name(path.name + ".tmp")
