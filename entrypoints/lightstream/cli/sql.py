"""``lightstream sql``: a query and its answer as a table, JSON or CSV."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Sequence
from typing import Any

from rich.console import Console

from lightstream.runtime.settings import Settings

from .formats import RowFormat
from .rows import as_text, console_for_rows, print_rows
from .view_query import ask_view

__all__ = ["run_sql"]

ROWS_SHOWN_MAX = 100
"""Of a table, unless all are asked for."""

notes = Console(highlight=False, stderr=True)


def run_sql(
    settings: Settings, query: str, output: RowFormat, *, vertical: bool = False, every_row: bool = False
) -> None:
    """Ask the view and print the answer to standard output.

    Args:
        vertical: of tables, each column on a line of its own.
        every_row: of tables, all rows that the view gives, not only the first.

    Raises:
        QueryError: the view refused the query or could not run it.
        ServiceUnavailableError: no view runs.
    """
    short = output is RowFormat.TABLE and not every_row
    answer = ask_view(settings, query, ROWS_SHOWN_MAX if short else None)
    columns: list[str] = answer["columns"]
    rows: list[Sequence[Any]] = answer["rows"]
    if output is RowFormat.JSON:
        for row in rows:
            sys.stdout.write(json.dumps(dict(zip(columns, row, strict=True)), default=str, ensure_ascii=False) + "\n")
    elif output is RowFormat.CSV:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([_csv_value(value) for value in row] for row in rows)
    else:
        console = console_for_rows()
        print_rows(console, columns, rows, vertical=vertical)
        console.print(f"{len(rows):,} row{'' if len(rows) == 1 else 's'}")
    if answer["truncated"]:
        more = "--all shows all" if short and len(rows) == ROWS_SHOWN_MAX else "add LIMIT or aggregate"
        notes.print(f"Only the first {len(rows):,} rows are shown; {more}.", soft_wrap=True)


def _csv_value(value: Any) -> Any:
    """JSON for lists and objects; all else as :mod:`csv` writes it."""
    return as_text(value) if isinstance(value, list | dict) else value
