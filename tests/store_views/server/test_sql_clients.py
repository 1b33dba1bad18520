"""Programs of other languages ask the view by Flight SQL: Java over JDBC, Go over ``database/sql``."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from pydantic import SecretStr

from lightstream.runtime.kafka import KafkaPublisher
from lightstream.runtime.services import discover
from lightstream.runtime.settings import Settings
from lightstream.schemas.topics import SPANS
from lightstream.store_views.client import ViewClient
from tests.store_views.view_process import running_view
from tests.stream_processors.assembly.build import proxy_span
from tests.support.waiting import eventually

pytestmark = pytest.mark.sql_clients

CLIENTS = Path(__file__).with_name("clients")
JDBC = "org.apache.arrow:flight-sql-jdbc-driver:18.3.0"
N = 1_000
START = 1_700_000_000_000_000_001
"""Nanoseconds that no double holds."""

ROWS = "SELECT span_id, start_unix_nano FROM spans ORDER BY start_unix_nano"
PARAMETERS = "SELECT ? AS text, ?::BIGINT + 1 AS number"
ERROR = "SELECT nothing, 1 FROM rollouts"
SLOW = "SELECT 'x', count(*) FROM range(100000000000) AS a(x) WHERE x % 7 = 3"
TIMEOUT_S = 300.0


@pytest.fixture
def java() -> list[str]:
    import jgo

    jars = os.pathsep.join(map(str, jgo.build(JDBC).all_jars))
    return ["java", "--add-opens=java.base/java.nio=ALL-UNNAMED", "-cp", jars, str(CLIENTS / "Client.java")]


@pytest.fixture
def go(tmp_path: Path) -> list[str]:
    subprocess.run(["go", "build", "-o", tmp_path / "client", "."], cwd=CLIENTS / "go", check=True)
    return [str(tmp_path / "client")]


@pytest.fixture
def view(settings: Settings) -> Iterator[Settings]:
    settings = settings.model_copy(update={"view_token": SecretStr("secret")})
    with running_view(settings):
        yield settings


@pytest.mark.parametrize("language", ["java", "go"])
def test_rows_parameters_an_error_and_a_cancel(language: str, view: Settings, request: pytest.FixtureRequest) -> None:
    command: list[str] = request.getfixturevalue(language)
    expected = publish(view)
    address = httpx.URL(discover(view, "flight-sql").address.replace("grpc", "http"))
    http = httpx.Client(base_url=discover(view, "view").address, headers={"authorization": "Bearer secret"}, timeout=60)
    arguments = [address.host, str(address.port), "secret", ROWS, PARAMETERS, ERROR, SLOW]
    with (
        http,
        subprocess.Popen([*command, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as client,
    ):

        def runs() -> bool:
            assert client.poll() is None, "it ended early"
            queries = http.get("/v1/queries").json()["queries"]
            return any(query["state"] == "running" and query["sql"] == SLOW for query in queries)

        eventually(runs, timeout_s=TIMEOUT_S, what="the statement to cancel")
        output, _ = client.communicate("\n", TIMEOUT_S)
        eventually(lambda: not http.get("/v1/queries").json()["queries"], what="the end of the statement")
    assert client.returncode == 0
    *rows, parameters, error, cancelled = output.strip().split("\n")
    assert rows == [f"row\t{span_id}\t{start}" for span_id, start in expected]
    assert parameters == f"parameters\tit's\t{START + 1}"
    assert re.match(r"error\t.*nothing", error)
    assert re.match(r"cancelled\t.*[Cc]ancel", cancelled)


def publish(view: Settings) -> list[tuple[str, int]]:
    """Spans for the view to show; their ids and starts."""
    spans = [proxy_span(n).model_copy(update={"start_unix_nano": START + n}) for n in range(N)]
    publisher, client = KafkaPublisher(view), ViewClient(view)
    try:
        written = [publisher.publish(SPANS, span.rollout_id or "", span) for span in spans]
        client.wait_for([one.result(300) for one in written])
    finally:
        publisher.close()
        client.close()
    return [(span.span_id, span.start_unix_nano) for span in spans]
