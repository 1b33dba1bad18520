"""``lightstream sql``: a query and its answer as a table, JSON or CSV."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from lightstream.schemas.errors import SettingsError
from lightstream.schemas.settings import Settings

from .view_query import ask_view

__all__ = ["run_sql"]

FORMATS = ("table", "json", "csv")
console = Console(highlight=False)
notes = Console(highlight=False, stderr=True)


def run_sql(settings: Settings, query: str, output: str) -> None:
    """Ask the view and print the answer to standard output.

    Raises:
        SettingsError: there is no such output.
        QueryError: the view refused the query or could not run it.
        ServiceUnavailableError: no view runs.
    """
    if output not in FORMATS:
        raise SettingsError(f"--format must be one of {', '.join(FORMATS)}, not {output}.")
    answer = ask_view(settings, query)
    columns: list[str] = answer["columns"]
    rows: list[Sequence[Any]] = answer["rows"]
    if answer["truncated"]:
        notes.print(f"Only the first {len(rows):,} rows are shown; add LIMIT or aggregate.")
    if output == "json":
        for row in rows:
            sys.stdout.write(json.dumps(dict(zip(columns, row, strict=True)), default=str, ensure_ascii=False) + "\n")
    elif output == "csv":
        writer = csv.writer(sys.stdout)
        writer.writerow(columns)
        writer.writerows(rows)
    else:
        console.print(_table(columns, rows))


def _table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Table:
    table = Table(caption=f"{len(rows):,} row{'' if len(rows) == 1 else 's'}", caption_justify="left")
    numeric = [bool(rows) and all(isinstance(row[i], int | float | None) for row in rows) for i in range(len(columns))]
    for column, right in zip(columns, numeric, strict=True):
        table.add_column(escape(column), justify="right" if right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(escape(_cell(value)) for value in row))
    return table


def _cell(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value)
