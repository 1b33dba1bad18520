"""One question to the view: to its server, or to its file where nothing runs any more."""

from __future__ import annotations

import json
from concurrent.futures import wait
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

from rich.console import Console

from lightstream.runtime.priority import run_behind
from lightstream.runtime.services import running_services
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import QueryError

from .load import needs

PATIENCE_S = 5.0
"""A view that is being restarted is back within this time."""

_notes = Console(highlight=False, stderr=True)


Values: TypeAlias = list[Any] | dict[str, Any]


@dataclass(frozen=True, slots=True)
class ViewSource:
    """The view to ask.

    Attributes:
        timeout_s: seconds that a statement may run.
        name: of a view that was started with one.
    """

    settings: Settings
    timeout_s: float = 30.0
    name: str = ""

    def ask(self, query: str, rows_max: int | None = None, *, params: Values | None = None) -> dict[str, Any]:
        """As :func:`ask_view`."""
        return ask_view(self.settings, query, rows_max, params=params, timeout_s=self.timeout_s, name=self.name)


def ask_view(
    settings: Settings,
    query: str,
    rows_max: int | None = None,
    *,
    params: Values | None = None,
    timeout_s: float = 30.0,
    name: str = "",
) -> dict[str, Any]:
    """``columns``, ``types``, ``rows``, ``truncated``, ``rebuilding``, as the view's server answers.

    Args:
        rows_max: rows of the answer; ``None``: as many as the view gives at once.
        params: values of the query's ``?`` or ``$name``.
        timeout_s: seconds that it may run.
        name: of a view that was started with one.

    Raises:
        QueryError: the view refused the query or could not run it.
        ServiceUnavailableError: no view runs, and its file is not there.
    """
    if settings.view_url is None and not running_services(settings):
        with needs("view"):
            from lightstream.store_views.server.serve import named_path
        file = named_path(settings, name)
        if file.exists():
            _say_once(f"Nothing runs with the data folder {settings.data_dir}; this is what its view held last.")
            return _ask_file(file, query, rows_max, params, timeout_s)
    with needs("view"):
        from lightstream.store_views.client import ViewClient
    client = ViewClient(settings, patience_s=PATIENCE_S, name=name)
    try:
        answer = client.query(query, params=params, rows_max=rows_max, timeout_s=timeout_s)
        if answer.rebuilding:
            _say_once(
                "The view has not read all of the log yet, so rows may be missing; `lightstream status` tells more."
            )
        return asdict(answer)
    finally:
        client.close()


@cache
def _say_once(note: str) -> None:
    _notes.print(note, soft_wrap=True)


def _ask_file(file: Path, query: str, rows_max: int | None, params: Values | None, timeout_s: float) -> dict[str, Any]:
    """As the view answers, on a connection that cannot write.

    Raises:
        QueryError: refused or failed; also when the file cannot be opened.
    """
    with needs("view"):
        import duckdb

        from lightstream.store_views.materialiser.view_file import CATALOG
        from lightstream.store_views.server.answer import json_answer
        from lightstream.store_views.server.statement import QueryLimits, Statement, run_query
        from lightstream.store_views.sql_literal import sql_literal
    limits = QueryLimits(timeout_s) if rows_max is None else QueryLimits(timeout_s, rows_max)
    try:
        connection = duckdb.connect()
        connection.execute(f"ATTACH {sql_literal(str(file))} AS {CATALOG} (READ_ONLY)")
        connection.execute(f"USE {CATALOG}")
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
    except duckdb.Error as error:
        raise QueryError(
            f"the view's file {file} cannot be read: {error}.", next_step="Start the view: `lightstream view`."
        ) from error
    statement = Statement()
    # In a thread of its own: DuckDB, while it makes an answer's first rows, heeds no Ctrl-C.
    running = run_behind(lambda: run_query(connection, query, limits, params, statement), 0, "lightstream-statement")
    try:
        outcome = running.result()
    except KeyboardInterrupt:
        statement.cancel()
        wait([running])
        raise
    answer: dict[str, Any] = json.loads(
        json_answer(outcome.columns, outcome.types, outcome.table, truncated=outcome.truncated)
    )
    return answer
