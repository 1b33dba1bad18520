"""The query that a waiting trainer names is one that the view answers."""

from __future__ import annotations

from pathlib import Path

from lightstream.store_views.server import QueryLimits, run_query
from lightstream.trainers.groups.source import WAITING_QUERY
from tests.store_views.log_file import open_log_file


def test_the_view_answers_it(tmp_path: Path) -> None:
    query = WAITING_QUERY.format("run-s1-g0").partition('"')[2].removesuffix('"')
    with open_log_file(tmp_path / "view.duckdb") as log:
        assert run_query(log.database.cursor(), query, QueryLimits()).columns[:3] == [
            "rollout_id",
            "status",
            "worker_id",
        ]
