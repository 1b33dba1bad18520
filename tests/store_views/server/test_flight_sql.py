"""The view's Flight SQL as ADBC meets it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import adbc_driver_manager
import httpx
import pyarrow as pa
import pytest
from adbc_driver_flightsql import DatabaseOptions, dbapi
from pydantic import SecretStr

from lightstream.runtime.kafka import KafkaPublisher
from lightstream.runtime.services import discover
from lightstream.runtime.settings import Settings
from lightstream.schemas.topics import SPANS
from lightstream.store_views.client import ViewClient
from tests.store_views.view_process import running_view
from tests.stream_processors.assembly.build import proxy_span
from tests.support.waiting import eventually

SLOW = "SELECT count(*) FROM range(100000000000) AS a(x) WHERE x % 7 = 3"
HEADER = DatabaseOptions.AUTHORIZATION_HEADER.value


@pytest.fixture
def view(settings: Settings) -> Iterator[Settings]:
    settings = settings.model_copy(update={"view_flight_port": 0, "view_token": SecretStr("secret")})
    with running_view(settings):
        yield settings


@pytest.fixture
def connection(view: Settings) -> Iterator[Any]:
    with connect(view) as connection:
        yield connection


def connect(view: Settings, header: str = "Bearer secret") -> Any:
    return dbapi.connect(discover(view, "flight-sql").address, db_kwargs={HEADER: header}, autocommit=True)


def ask(connection: Any, sql: str, parameters: Any = None) -> pa.Table:
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        table: pa.Table = cursor.fetch_arrow_table()
        return table


def test_statements_have_the_same_rows_as_over_http(connection: Any, view: Settings) -> None:
    publisher, client = KafkaPublisher(view), ViewClient(view)
    try:
        written = [publisher.publish(SPANS, f"r{n}", proxy_span(n)).result(60) for n in range(1, 21)]
        client.wait_for(written)
        sql = "SELECT span_id, start_unix_nano, start_at, llm_prompt_token_ids FROM spans ORDER BY span_id"
        assert ask(connection, sql).equals(client.arrow(sql)[0])
        large = ask(connection, "SELECT range + 1700000000000000001 AS t, range(range % 50) AS list FROM range(100000)")
        assert large["t"].to_pylist() == [n + 1700000000000000001 for n in range(100000)]
        assert ask(connection, "SELECT 1 AS a WHERE false").num_rows == 0
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
        eventually(lambda: [q for q in http.get("/v1/queries").json()["queries"] if q["state"] == "running"], what="it")
        cursor.adbc_cancel()
        asking.join()
        eventually(lambda: not http.get("/v1/queries").json()["queries"], what="the end of the statement")
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
    assert schema_of_funnel.names == ["stage", "count", "reason"]


@pytest.mark.parametrize("header", ["Bearer wrong", "secret"])
def test_the_token_is_asked_for(header: str, view: Settings) -> None:
    with pytest.raises(adbc_driver_manager.Error, match="asks for its token"), connect(view, header) as connection:
        ask(connection, "SELECT 1")
