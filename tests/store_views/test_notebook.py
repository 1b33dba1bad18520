"""The view in a notebook."""

from __future__ import annotations

import subprocess
import sys
import warnings

import pandas as pd
import polars as pl
import pytest

from lightstream.runtime.http.server import HttpServer
from lightstream.runtime.kafka import KafkaPublisher
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import NotFoundError, QueryError
from lightstream.schemas.topics import SPANS
from lightstream.store_views import view
from lightstream.store_views.materialiser import Materialiser, ViewDatabase
from lightstream.store_views.server import create_app
from tests.store_views.call_gate import CallGate
from tests.store_views.view_process import running_view
from tests.stream_processors.assembly.build import proxy_span
from tests.support.waiting import eventually


def test_answers_are_tables_of_arrow_polars_and_pandas(settings: Settings) -> None:
    with running_view(settings), view(settings, at_least="now") as ours:
        sql = "SELECT range + $first AS n, [range] AS list FROM range($count)"
        assert ours.sql(sql, first=1700000000000000001, count=2).to_pydict() == {
            "n": [1700000000000000001, 1700000000000000002],
            "list": [[0], [1]],
        }
        frame = ours.pl(sql, first=1, count=3)
        assert isinstance(frame, pl.DataFrame)
        assert frame["n"].to_list() == [1, 2, 3]
        pandas = ours.df(sql, first=1, count=3)
        assert isinstance(pandas, pd.DataFrame)
        assert pandas["n"].tolist() == [1, 2, 3]
        assert ours.sql(":stuck", run="mine").num_rows == 0
        assert "quiet_seconds" in ours.sql(":stuck").column_names
        with pytest.warns(UserWarning, match="only the first 100,000 rows came"):
            assert ours.sql("FROM range(100001)").num_rows == 100_000
        with pytest.raises(QueryError, match="the view only reads"):
            ours.sql("DROP VIEW rollouts")
        with pytest.raises(NotFoundError, match="lightstream sql :"):
            ours.sql(":nothing")


def test_that_the_view_has_not_read_all_yet_is_warned_of(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    publisher, gate = KafkaPublisher(settings), CallGate(monkeypatch, ViewDatabase, "append")
    publisher.publish(SPANS, "r1", proxy_span(1)).result(120)
    publisher.close()
    materialiser = Materialiser(settings)
    materialiser.start()
    server = HttpServer(create_app(materialiser), settings, name="view")
    server.start()
    try:
        with view(settings) as ours:
            with pytest.warns(UserWarning, match="rows are missing"):
                assert ours.df("SELECT count(*) AS n FROM spans_raw")["n"].tolist() == [0]
            gate.open()
            eventually(lambda: materialiser.rebuilding is None, what="the end of the log")
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                assert ours.df("SELECT count(*) AS n FROM spans_raw")["n"].tolist() == [1]
    finally:
        server.stop()
        materialiser.stop()


def test_asking_for_the_view_imports_no_frames() -> None:
    program = (
        "import sys; from lightstream.store_views import View, view; view(); "
        "print([name for name in ('polars', 'pandas', 'torch', 'duckdb') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[]\n", "")
