"""The view in notebooks: an answer is a table of Arrow, polars or pandas."""

from __future__ import annotations

import warnings
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast

from lightstream.runtime.settings import Settings

from .client import AtLeast, ViewClient
from .queries import named_query

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

WARNED_AT = 3
"""Frames up, the notebook's own line."""


def view(settings: Settings | None = None, *, name: str = "", at_least: AtLeast | None = None) -> View:
    """Return the view that runs with these settings (by default the environment's), for questions in SQL.

        from lightstream.store_views import view

        view().sql("FROM rollouts WHERE run_id = $run", run="my-run")
        view().pl(":reward-by-agent", run="my-run")

    Args:
        name: of a view that was started with one (``lightstream view --name bi``).
        at_least: what each answer must reflect; ``"now"`` for all that is in the log when it is asked.
    """
    return View(ViewClient(settings or Settings.load(), name=name), at_least)


class View:
    """Asks the view. Values are given by name, and are no part of the SQL; the name of a query that there is already
    (``lightstream sql :`` lists them) may stand for a statement, with a colon before it.

    An answer that is cut off is warned of, and one that lacks rows since the view has not read all of the log yet. What
    is asked may fail as :meth:`ViewClient.query` says.
    """

    def __init__(self, client: ViewClient, at_least: AtLeast | None = None) -> None:
        self._client = client
        self._at_least: AtLeast | None = at_least

    def __enter__(self) -> View:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def sql(self, sql: str, /, **params: Any) -> pa.Table:
        """The answer as an Arrow table.

        Raises:
            QueryError, ServiceUnavailableError, SettingsError: as :meth:`ViewClient.query` does.
            NotFoundError: no query has this name.
        """
        return self._ask(sql, params)

    def pl(self, sql: str, /, **params: Any) -> pl.DataFrame:
        """As :meth:`sql`, for polars."""
        import polars as pl

        return cast("pl.DataFrame", pl.from_arrow(self._ask(sql, params)))  # a table is never a series

    def df(self, sql: str, /, **params: Any) -> pd.DataFrame:
        """As :meth:`sql`, for pandas."""
        frame: pd.DataFrame = self._ask(sql, params).to_pandas()
        return frame

    def close(self) -> None:
        """Close connections."""
        self._client.close()

    def _ask(self, sql: str, params: dict[str, Any]) -> pa.Table:
        if sql.startswith(":"):
            sql, params = named_query(sql).statement(params)
        answer = self._client.arrow(sql, self._at_least, params=params or None)
        if answer.truncated:
            cut_off = f"only the first {answer.table.num_rows:,} rows came; add LIMIT or aggregate."
            warnings.warn(cut_off, stacklevel=WARNED_AT)
        if answer.rebuilding:
            lacking = "rows are missing: the view is reading the log anew (`lightstream status` tells how far it is)."
            warnings.warn(lacking, stacklevel=WARNED_AT)
        return answer.table
