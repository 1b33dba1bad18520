"""``lightstream sql``: a query and its answer as a table, JSON or CSV."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from lightstream.schemas.errors import QueryError, SettingsError
from lightstream.schemas.services import running_services
from lightstream.schemas.settings import Settings

from .load import load

__all__ = ["run_sql"]

PATIENCE_S = 5.0
"""A view that is being restarted is back within this time."""

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
        raise SettingsError(f"--format {output} is none of: {', '.join(FORMATS)}.")
    answer = _ask(settings, query)
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


def _ask(settings: Settings, query: str) -> dict[str, Any]:
    """``columns``, ``types``, ``rows``, ``truncated``: from the view, or from its file where nothing runs any more."""
    file = settings.data_dir / "view" / "lightstream.duckdb"
    if settings.view_url is None and file.exists() and not running_services(settings):
        notes.print(f"Nothing runs with the data folder {settings.data_dir}; this is what its view held at the end.")
        return _ask_file(file, query)
    client = load("lightstream.store_views.client", "ViewClient")(settings, patience_s=PATIENCE_S)
    try:
        return asdict(client.query(query))
    finally:
        client.close()


def _ask_file(file: Path, query: str) -> dict[str, Any]:
    """As the view answers, on a connection that cannot write.

    Raises:
        QueryError: refused or failed; also when the file cannot be opened.
    """
    connect = load("duckdb", "connect")
    broken: type[Exception] = load("duckdb", "Error")
    limits = load("lightstream.store_views.server.query", "QueryLimits")()
    try:
        connection = connect(str(file), read_only=True)
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
    except broken as error:
        raise QueryError(
            f"the view's file {file} cannot be read: {error}.", next_step="Start the view: `lightstream view`."
        ) from error
    outcome = load("lightstream.store_views.server.query", "run_query")(connection, query, limits)
    as_json = load("lightstream.store_views.server.json_values", "json_answer")
    answer: dict[str, Any] = json.loads(
        as_json(outcome.columns, outcome.types, outcome.table, truncated=outcome.truncated)
    )
    return answer


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
