"""The view's Flight SQL as ADBC meets it."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import adbc_driver_manager
import httpx
import pyarrow as pa
import pytest
from adbc_driver_flightsql import DatabaseOptions, dbapi
from pyarrow import flight
from pydantic import SecretStr

from lightstream.runtime.http.access import Access
from lightstream.runtime.kafka import KafkaPublisher
from lightstream.runtime.services import discover, find
from lightstream.runtime.settings import Settings
from lightstream.schemas.topics import SPANS
from lightstream.store_views.client import ViewClient
from lightstream.store_views.materialiser import Materialiser, Place, Positions, ViewDatabase
from lightstream.store_views.server import admission, serve
from lightstream.store_views.server.answering import Answering
from lightstream.store_views.server.flight_messages import encode_any, make
from lightstream.store_views.server.flight_sql import FlightSqlServer
from lightstream.store_views.server.statement import QueryLimits
from tests.store_views.call_gate import CallGate
from tests.store_views.view_process import running_view
from tests.stream_processors.assembly.build import proxy_span
from tests.support.waiting import eventually

SLOW = "SELECT count(*) FROM range(100000000000) AS a(x) WHERE x % 7 = 3"
COUNT = "SELECT count(*) AS n FROM spans_raw"
WAIT_S = 120.0
HEADER = DatabaseOptions.AUTHORIZATION_HEADER.value


@pytest.fixture
def view(settings: Settings) -> Iterator[Settings]:
    settings = settings.model_copy(update={"view_token": SecretStr("secret")})
    with running_view(settings):
        yield settings


@pytest.fixture
def connection(view: Settings) -> Iterator[Any]:
    with connect(view) as connection:
        yield connection


def connect(view: Settings, header: str = "Bearer secret") -> Any:
    return dbapi.connect(discover(view, "flight-sql").address, db_kwargs={HEADER: header}, autocommit=True)


@contextmanager
def served(settings: Settings, materialiser: Materialiser) -> Generator[str]:
    """Flight SQL of this process, over a materialiser that the block starts; its address."""
    loop = asyncio.new_event_loop()
    running = threading.Thread(target=loop.run_forever)
    running.start()
    materialiser.start()
    answering = Answering(lambda: materialiser.database.cursor())
    server = FlightSqlServer("grpc://127.0.0.1:0", answering, materialiser, loop, QueryLimits(), Access())
    try:
        yield f"grpc://127.0.0.1:{server.port}"
    finally:
        server.shutdown()
        materialiser.stop()
        loop.call_soon_threadsafe(loop.stop)
        running.join()
        loop.close()


def ask(connection: Any, sql: str, parameters: Any = None) -> pa.Table:
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        table: pa.Table = cursor.fetch_arrow_table()
        return table


def test_statements_have_the_same_rows_as_over_http(connection: Any, view: Settings) -> None:
    publisher, client = KafkaPublisher(view), ViewClient(view)
    try:
        starts = [1_700_000_000_000_000_001 + n for n in range(1_000)]  # nanoseconds that no double holds
        spans = [proxy_span(n).model_copy(update={"start_unix_nano": start}) for n, start in enumerate(starts)]
        written = [publisher.publish(SPANS, span.rollout_id or "", span) for span in spans]
        client.wait_for([one.result(300) for one in written])
        sql = "SELECT span_id, start_unix_nano, start_at, llm_prompt_token_ids FROM spans ORDER BY start_unix_nano"
        answer = ask(connection, sql)
        assert answer["start_unix_nano"].to_pylist() == starts
        assert answer["span_id"].to_pylist() == [span.span_id for span in spans]
        assert answer.equals(client.arrow(sql).table)
        large = ask(connection, "SELECT range + 1700000000000000001 AS t, range(range % 50) AS list FROM range(100000)")
        assert large["t"].to_pylist() == [n + 1700000000000000001 for n in range(100000)]
        assert ask(connection, "SELECT 1 AS a WHERE false").num_rows == 0
        with pytest.raises(adbc_driver_manager.Error, match=r"more rows than the first 100,000.*Add LIMIT"):
            ask(connection, "FROM range(100001)")
    finally:
        publisher.close()
        client.close()


def test_prepared_statements_take_parameters(connection: Any) -> None:
    sql = "SELECT ? AS text, ?::BIGINT + 1 AS number"
    with connection.cursor() as cursor:
        for text, number in [("it's", 1700000000000000001), ("two", 2)]:
            cursor.execute(sql, (text, number))
            assert cursor.fetchall() == [(text, number + 1)]
        with pytest.raises(adbc_driver_manager.Error, match="one row of values, not 2"):
            cursor.execute(sql, pa.table({"a": ["x", "y"], "b": [1, 2]}))
        with pytest.raises(adbc_driver_manager.Error, match=r"Expected|parameter"):
            cursor.execute(sql, ("only one",))


def test_errors_say_what_the_gate_says(connection: Any) -> None:
    for sql, values, said in [
        ("DROP VIEW rollouts", None, "the view only reads"),
        ("DROP VIEW rollouts", ("x",), "the view only reads"),
        ("FROM read_text('/etc/hostname')", None, "'read_text' is not allowed"),
        ("FROM read_text(?)", ("/etc/hostname",), "'read_text' is not allowed"),
        ("SELECT nothing FROM rollouts", None, "nothing"),
    ]:
        with pytest.raises(adbc_driver_manager.Error, match=said):
            ask(connection, sql, values)
    with pytest.raises(adbc_driver_manager.Error), connection.cursor() as cursor:
        cursor.executemany("INSERT INTO offsets VALUES (?, 0, 0)", [("x",)])


def test_a_cancelled_statement_ends(connection: Any, view: Settings) -> None:
    errors: list[Exception] = []
    with (
        connection.cursor() as cursor,
        httpx.Client(
            base_url=discover(view, "view").address, headers={"authorization": "Bearer secret"}, timeout=60
        ) as http,
    ):

        def run() -> None:
            try:
                cursor.execute(SLOW)
                cursor.fetchall()
            except adbc_driver_manager.Error as error:
                errors.append(error)

        asking = threading.Thread(target=run)
        asking.start()

        def states() -> list[str]:
            listed: list[dict[str, str]] = http.get("/v1/queries").json()["queries"]
            return [query["state"] for query in listed if query["sql"] == SLOW]

        eventually(lambda: states() == ["running"], what="it")
        cursor.adbc_cancel()
        asking.join()
        eventually(lambda: states() == [], what="the end of the statement")
    assert len(errors) == 1
    assert "cancel" in str(errors[0]).lower()


def test_drivers_find_their_way_in_the_catalogue(connection: Any) -> None:
    info = connection.adbc_get_info()
    assert info["vendor_name"] == "Lightstream"
    assert connection.adbc_get_table_types() == ["TABLE", "VIEW"]
    (catalogue,) = connection.adbc_get_objects(depth="tables", table_name_filter="roll%").read_all().to_pylist()
    (schema,) = catalogue["catalog_db_schemas"]
    assert (catalogue["catalog_name"], schema["db_schema_name"]) == ("lightstream", "main")
    found = {table["table_name"]: table["table_type"] for table in schema["db_schema_tables"]}
    assert found["rollouts"] == "VIEW"
    assert found["rollouts_latest"] == "TABLE"
    assert "spans" not in found
    schema_of_funnel = connection.adbc_get_table_schema("funnel")
    assert schema_of_funnel.names == ["run_id", "stage", "count", "reason"]


@pytest.mark.parametrize("header", ["Bearer wrong", "secret"])
def test_the_token_is_asked_for(header: str, view: Settings) -> None:
    with pytest.raises(adbc_driver_manager.Error, match="asks for its token"), connect(view, header) as connection:
        ask(connection, "SELECT 1")


def test_until_the_view_has_caught_up_answers_say_that_rows_are_missing(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher, gate = KafkaPublisher(settings), CallGate(monkeypatch, ViewDatabase, "append")
    written = publisher.publish(SPANS, "r1", proxy_span(1)).result(WAIT_S)
    publisher.close()
    materialiser = Materialiser(settings)
    with served(settings, materialiser) as address, dbapi.connect(address, autocommit=True) as connection:
        assert rebuilding(address) == ("lightstream.rebuilding=true", "true")
        answer = ask(connection, COUNT)
        assert answer["n"].to_pylist() == [0]
        assert answer.schema.metadata[b"lightstream.rebuilding"] == b"true"  # ADBC hands it on
        gate.open()
        assert materialiser.positions.wait_for({(SPANS.name, written.partition): written.offset + 1}, WAIT_S) == {}
        eventually(lambda: materialiser.rebuilding is None, what="the end of the log")
        assert rebuilding(address) == ("lightstream.rebuilding=false", "false")
        assert ask(connection, COUNT)["n"].to_pylist() == [1]


def rebuilding(address: str) -> tuple[str, str]:
    """The metadata of a ``FlightInfo``, and of the answer's schema, which clients are told."""
    command = encode_any(make("CommandStatementQuery", query=COUNT))
    with flight.connect(address) as client:
        info = client.get_flight_info(flight.FlightDescriptor.for_command(command))
        answer = client.do_get(info.endpoints[0].ticket).read_all()
    assert info.schema.metadata == answer.schema.metadata
    assert isinstance(info.app_metadata, bytes)
    return info.app_metadata.decode(), answer.schema.metadata[b"lightstream.rebuilding"].decode()


def test_what_had_been_fetched_is_waited_for(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    publisher, gate = KafkaPublisher(settings), CallGate(monkeypatch, ViewDatabase, "append")
    gate.open()
    materialiser = Materialiser(settings)
    wait_for = Positions.wait_for

    def open_and_wait(*arguments: Any, urgent: bool = True) -> Mapping[Place, tuple[int, int]]:
        gate.open()
        return wait_for(*arguments, urgent=urgent)

    with served(settings, materialiser) as address, dbapi.connect(address, autocommit=True) as connection:
        eventually(lambda: materialiser.rebuilding is None, what="the end of the log")
        gate.close()
        written = publisher.publish(SPANS, "r1", proxy_span(1)).result(WAIT_S)
        place = (SPANS.name, written.partition)
        eventually(lambda: materialiser.fetched().get(place, 0) > written.offset, what="the span at the view")
        monkeypatch.setattr(admission, "FRESH_WAIT_S", WAIT_S)
        monkeypatch.setattr(Positions, "wait_for", open_and_wait)
        assert ask(connection, COUNT)["n"].to_pylist() == [1]
    publisher.close()


async def test_without_flight_the_view_says_so_and_runs(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "lightstream.store_views.server.flight_sql", None)
    materialiser = Materialiser(settings)
    answering = Answering(lambda: materialiser.database.cursor())
    arguments = ("", "http://127.0.0.1:1", answering, materialiser, QueryLimits(), Access())
    async with serve.flight_sql_served(settings, *arguments):
        assert find(settings, "flight-sql") is None
    assert "the view speaks no Flight SQL" in caplog.text
