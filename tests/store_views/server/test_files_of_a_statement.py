"""How many files somebody reads who follows a statement from its HTTP request to its answer."""

from __future__ import annotations

from pathlib import Path

import httpx

from lightstream.runtime.http.server import HttpServer
from lightstream.runtime.settings import Settings
from lightstream.store_views.server import create_app
from lightstream.store_views.server.answering import Answering
from lightstream.store_views.server.watchdog import Watchdog
from tests.store_views.test_materialiser import following
from tests.support.files_entered import OF_EVERY_SERVER, files_entered

FILES_MAX = 12
FILES_OF_EVERY_SERVER_MAX = 5


def test_a_statement_goes_through_few_files(settings: Settings, tmp_path: Path) -> None:
    with following(settings) as view, files_entered() as entered:
        watchdog = Watchdog(tmp_path / "view.duckdb", memory_bytes_max=2**40, duckdb_bytes_max=2**40)
        app = create_app(view, answering=Answering(lambda: view.database.cursor(), watchdog))
        server = HttpServer(app, settings, name="view", port=0, setting="none", announced=False)
        url = server.start()
        try:
            httpx.get(f"{url}/healthz").raise_for_status()
            entered.clear()
            answer = httpx.post(f"{url}/v1/sql", json={"sql": "SELECT 1 AS one UNION ALL SELECT 2"}, timeout=60)
            found = set(entered)
        finally:
            server.stop()
    assert sorted(answer.json()["rows"]) == [[1], [2]]
    assert "store_views/server/statement.py" in found, "the tracing works"
    assert len(found & OF_EVERY_SERVER) <= FILES_OF_EVERY_SERVER_MAX
    assert len(found - OF_EVERY_SERVER) <= FILES_MAX, sorted(found - OF_EVERY_SERVER)
