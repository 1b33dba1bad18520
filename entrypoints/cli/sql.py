"""``lightstream sql``: a query and its answer as a table, JSON or CSV."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from lightstream.schemas.errors import QueryError
from lightstream.store_views.column_names import distinct_names
from lightstream.store_views.queries import QUERIES, named_query

from .formats import RowFormat
from .rows import as_text, console_for_rows, print_rows
from .view_query import ViewSource

ROWS_SHOWN_MAX = 100
"""Of a table, unless all are asked for."""

notes = Console(highlight=False, stderr=True)


@dataclass(frozen=True, slots=True)
class Question:
    """A statement and the values of its ``$name``, which are no part of the SQL."""

    sql: str
    values: dict[str, Any]

    @staticmethod
    def of(text: str, values: dict[str, str]) -> Question:
        """A statement, or a query by its name (``:stuck``).

        Raises:
            NotFoundError: there is no such query.
            QueryError: it has no such parameter.
        """
        if not text.startswith(":"):
            return Question(text, {name: _value(value) for name, value in values.items()})
        return Question(*named_query(text.strip()).statement(values))


def values_given(arguments: Sequence[str], *, refuse: bool = False) -> dict[str, str]:
    """Values of ``--name VALUE`` and ``--name=VALUE``.

    Args:
        refuse: there must be none.

    Raises:
        QueryError: they are something else.
    """
    values: dict[str, str] = {}
    remaining = list(arguments)
    while remaining:
        name, equals, value = remaining.pop(0).partition("=")
        if refuse or not name.startswith("--") or not (equals or remaining):
            raise QueryError(
                f"{name!r} is no option.", next_step="`lightstream sql --help` lists them; --name VALUE is for $name."
            )
        values[name[2:].replace("-", "_")] = value if equals else remaining.pop(0)
    return values


def read_script(file: Path | None) -> str:
    """The text of a file, or standard input.

    Raises:
        QueryError: the file cannot be read.
    """
    if file is None:
        return sys.stdin.read()
    try:
        return file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise QueryError(f"the file {file} cannot be read: {error}.", next_step="Name a file of SQL text.") from error


def run_queries_list() -> None:
    """Print the queries that have names, and their parameters."""
    rows = [
        [
            f":{query.name}",
            query.doc,
            " ".join(f"--{one.name}" + ("" if one.default is None else f" {one.default}") for one in query.parameters),
        ]
        for query in QUERIES.values()
    ]
    print_rows(console_for_rows(), ["query", "tells", "parameters"], rows, cut=False)


def run_sql(
    source: ViewSource, question: Question, output: RowFormat, *, vertical: bool = False, every_row: bool = False
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
    answer = source.ask(question.sql, ROWS_SHOWN_MAX if short else None, params=question.values or None)
    columns: list[str] = answer["columns"]
    rows: list[Sequence[Any]] = answer["rows"]
    if output is RowFormat.JSON:
        names = distinct_names(columns)
        for row in rows:
            sys.stdout.write(json.dumps(dict(zip(names, row, strict=True)), default=str, ensure_ascii=False) + "\n")
    elif output is RowFormat.CSV:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(distinct_names(columns))
        writer.writerows([_csv_value(value) for value in row] for row in rows)
    else:
        console = console_for_rows()
        print_rows(console, columns, rows, vertical=vertical)
        console.print(f"{len(rows):,} row{'' if len(rows) == 1 else 's'}")
    if answer["truncated"]:
        more = "--all shows all" if short and len(rows) == ROWS_SHOWN_MAX else "add LIMIT or aggregate"
        notes.print(f"Only the first {len(rows):,} rows are shown; {more}.", soft_wrap=True)


def _value(text: str) -> Any:
    """A number, ``true``, ``false`` or ``null``, or the text itself."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return text if isinstance(value, str | list | dict) else value


def _csv_value(value: Any) -> Any:
    """JSON for lists and objects; all else as :mod:`csv` writes it."""
    return as_text(value) if isinstance(value, list | dict) else value
