"""One question to the view: to its server, or to its file where nothing runs any more."""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from rich.console import Console

from lightstream.runtime.services import running_services
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import QueryError

from .load import needs

__all__ = ["PATIENCE_S", "ask_view"]

PATIENCE_S = 5.0
"""A view that is being restarted is back within this time."""

_notes = Console(highlight=False, stderr=True)


def ask_view(
    settings: Settings, query: str, rows_max: int | None = None, *, params: list[Any] | None = None
) -> dict[str, Any]:
    """``columns``, ``types``, ``rows``, ``truncated``, ``rebuilding``, as the view's server answers.

    Args:
        rows_max: rows of the answer; ``None``: as many as the view gives at once.
        params: values of the query's ``?``.

    Raises:
        QueryError: the view refused the query or could not run it.
        ServiceUnavailableError: no view runs, and its file is not there.
    """
    if settings.view_url is None and not running_services(settings):
        with needs("view"):
            from lightstream.store_views.materialiser import default_path
        file = default_path(settings)
        if file.exists():
            _say_once(f"Nothing runs with the data folder {settings.data_dir}; this is what its view held last.")
            return _ask_file(file, query, rows_max, params)
    with needs("view"):
        from lightstream.store_views.client import ViewClient
    client = ViewClient(settings, patience_s=PATIENCE_S)
    try:
        answer = client.query(query, params=params, rows_max=rows_max)
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


def _ask_file(file: Path, query: str, rows_max: int | None, params: list[Any] | None) -> dict[str, Any]:
    """As the view answers, on a connection that cannot write.

    Raises:
        QueryError: refused or failed; also when the file cannot be opened.
    """
    with needs("view"):
        import duckdb

        from lightstream.store_views.server.json_values import json_answer
        from lightstream.store_views.server.query import QueryLimits, run_query
    limits = QueryLimits() if rows_max is None else QueryLimits(rows_max=rows_max)
    try:
        connection = duckdb.connect(str(file), read_only=True)
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
    except duckdb.Error as error:
        raise QueryError(
            f"the view's file {file} cannot be read: {error}.", next_step="Start the view: `lightstream view`."
        ) from error
    outcome = run_query(connection, query, limits, params)
    answer: dict[str, Any] = json.loads(
        json_answer(outcome.columns, outcome.types, outcome.table, truncated=outcome.truncated)
    )
    return answer
