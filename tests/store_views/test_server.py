"""The view server, as other processes meet it."""

from __future__ import annotations

import asyncio
import signal
import threading
import uuid
from collections.abc import Generator
from pathlib import Path

import httpx
import pyarrow as pa
import pytest
from pydantic import SecretStr

from lightstream.runtime.kafka import KafkaPublisher, create_topics
from lightstream.runtime.services import discover, find
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import QueryError, ServiceUnavailableError, SettingsError
from lightstream.schemas.topics import SPANS
from lightstream.store_views.client import AsyncViewClient, ViewClient
from lightstream.store_views.materialiser import default_path
from lightstream.store_views.queries import QUERIES
from tests.store_views.view_process import output_path, running_view, start_view, wait_until_ready
from tests.stream_processors.assembly.build import proxy_span

ARROW = "application/vnd.apache.arrow.stream"
JSON = {"content-type": "application/json"}
SLOW = "SELECT count(*) FROM range(100000000000) AS a(x) WHERE x % 7 = 3"


@pytest.fixture
def client(settings: Settings) -> Generator[ViewClient, None, None]:
    view = ViewClient(settings)
    yield view
    view.close()


@pytest.fixture(scope="module")
def view_of_settings(kafka_servers: str, tmp_path_factory: pytest.TempPathFactory) -> Generator[str, None, None]:
    """Address of a view with names and a limit of its own."""
    settings = Settings.load(
        kafka_bootstrap_servers=kafka_servers,
        topic_prefix=f"t{uuid.uuid4().hex[:12]}.",
        topic_partitions=1,
        data_dir=tmp_path_factory.mktemp("view"),
        allowed_hosts="view.example, other.example.",
        view_timeout_s_max=60.0,
    )
    create_topics(settings)
    with running_view(settings):
        yield discover(settings, "view").address


def test_a_reader_sees_its_own_writes_at_once(settings: Settings, client: ViewClient) -> None:
    publisher = KafkaPublisher(settings)
    with running_view(settings):
        for number in range(1, 11):
            written = publisher.publish(SPANS, f"r{number}", proxy_span(number)).result(300)
            assert client.query("SELECT count(*) FROM spans", [written]).scalar() == number
        client.wait_for("now")
        positions = client.positions()
        assert sum(positions["positions"]["spans"].values()) == 10
        assert set(positions) == {"positions", "end", "lag", "lag_records", "kafka_silent_s", "rebuilding"}
        answer = client.query("SELECT span_id, llm_prompt_token_ids FROM spans ORDER BY ALL LIMIT 1")
        assert answer.dicts() == [{"span_id": "0" * 15 + "1", "llm_prompt_token_ids": [1, 2, 3]}]
        assert answer.types == ["VARCHAR", "INTEGER[]"]
    publisher.close()


def test_the_server_tells_what_is_wrong(settings: Settings, client: ViewClient) -> None:
    with running_view(settings):
        with pytest.raises(QueryError, match="the view only reads"):
            client.query("DROP VIEW rollouts")
        with pytest.raises(QueryError, match="does not exist"):
            client.query("FROM nothing_of_the_kind")
        with pytest.raises(QueryError, match="longer than"):
            client.query(SLOW, timeout_s=0.1)
        with pytest.raises(ServiceUnavailableError, match=r"spans/0 is at 0, not 8"):
            client.query("SELECT 1", {"spans": {0: 7}}, wait_s=0.1)
        cut = client.query("FROM range(10)", rows_max=3)
        assert (len(cut.rows), cut.truncated) == (3, True)
        assert client.query("FROM rollouts").rows == []
        with pytest.raises(QueryError, match="no rows"):
            client.query("FROM rollouts").scalar()
        url = discover(settings, "view").address
        assert httpx.post(f"{url}/v1/sql", content=b"x" * 5_000_000, headers=JSON, timeout=60).status_code == 413
        assert httpx.get(f"{url}/v1/sql", timeout=60).status_code == 405
        assert httpx.get(f"{url}/nowhere", timeout=60).status_code == 404


def test_a_request_needs_the_token_and_comes_from_no_page_of_another_origin(settings: Settings) -> None:
    settings = settings.model_copy(update={"view_token": SecretStr("secret")})
    with running_view(settings):
        assert ViewClient(settings).query("SELECT 42").scalar() == 42
        with pytest.raises(SettingsError, match="LIGHTSTREAM_VIEW_TOKEN"):
            ViewClient(settings.model_copy(update={"view_token": None})).query("SELECT 42")
        url = discover(settings, "view").address
        for headers, status in [
            ({}, 200),
            ({"content-type": "application/json; charset=utf-8"}, 200),
            ({"content-type": "text/plain"}, 415),
            ({"content-type": "application/x-www-form-urlencoded"}, 415),
            ({"origin": "http://127.0.0.1:1"}, 403),
            ({"origin": "null"}, 403),
            ({"origin": "http://rebound.example:80", "host": "rebound.example:80"}, 403),
            ({"origin": "http://view:8000", "host": "view:8000"}, 200),
            ({"origin": "http://127.0.0.1:8000", "host": "127.0.0.1:8000"}, 200),
            ({"authorization": "Bearer wrong"}, 401),
        ]:
            sent = {"authorization": "Bearer secret"} | JSON | headers
            response = httpx.post(f"{url}/v1/sql", content=b"""{"sql": "SELECT 'sesame'"}""", headers=sent, timeout=60)
            assert response.status_code == status, headers
            assert ("sesame" in response.text) == (status == 200)
            if status in (401, 403):
                assert httpx.get(f"{url}/v1/positions", headers=sent, timeout=60).status_code == status


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_no_route_answers_under_another_name(view_of_settings: str, method: str) -> None:
    """A page whose name was resolved anew to this machine reads from its own host, so it sends no origin."""
    rebound = JSON | {"host": "rebound.example:80", "accept": "text/html"}
    for path in (
        "/v1/sql",
        "/v1/named-queries",
        "/v1/queries",
        "/v1/queries/q",
        "/v1/positions",
        "/v1/rollouts/r/explain",
        "/v1/reasons",
        "/v1/changes",
        "/v1/nothing",
        "/",
        "/rollouts",
        "/assets/index.js",
    ):
        answer = httpx.request(
            method, f"{view_of_settings}{path}", headers=rebound, content=b'{"sql": "SELECT 1"}', timeout=60
        )
        assert answer.status_code == 403, path
        assert "add it to LIGHTSTREAM_ALLOWED_HOSTS" in answer.json()["error"]["message"]


def test_addresses_and_names_of_its_own_are_answered(view_of_settings: str) -> None:
    for host in ("127.0.0.1:1", "[::1]:1", "10.1.2.3", "localhost:1", "view:8081", "view.example", "Other.Example:80"):
        answer = httpx.get(f"{view_of_settings}/v1/positions", headers={"host": host}, timeout=60)
        assert (answer.status_code, "lag_records" in answer.text) == (200, True), host
        page = {"host": host, "origin": f"https://{host}"}
        assert httpx.get(f"{view_of_settings}/v1/reasons", headers=page, timeout=60).status_code == 200, host
    for path in ("/healthz", "/readyz", "/metrics"):
        answer = httpx.get(f"{view_of_settings}{path}", headers={"host": "probe.example"}, timeout=60)
        assert answer.status_code in (200, 503), path


def test_a_statement_gets_no_more_time_than_the_setting_says(view_of_settings: str) -> None:
    for timeout_s, status in ((60, 200), (61, 400)):
        asked = {"sql": "SELECT 1", "timeout_s": timeout_s}
        answer = httpx.post(f"{view_of_settings}/v1/sql", json=asked, timeout=60)
        assert (answer.status_code, "from 0.01 to 60" in answer.text) == (status, status == 400)


async def test_a_client_in_an_event_loop_gets_the_same_and_may_be_cancelled(settings: Settings) -> None:
    client = AsyncViewClient(settings, patience_s=0.2)
    with pytest.raises(ServiceUnavailableError):  # nobody answers yet
        await client.query("SELECT 1")
    with running_view(settings):
        answer = await client.query("SELECT $a AS a, range AS n FROM range(2)", params={"a": "'"})
        assert answer.dicts() == [{"a": "'", "n": 0}, {"a": "'", "n": 1}]
        with pytest.raises(QueryError, match="the view only reads"):
            await client.query("DROP VIEW rollouts")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.query(SLOW), 0.3)
        assert (await asyncio.gather(*(client.query(f"SELECT {n}") for n in range(20))))[7].scalar() == 7
    await client.close()


def test_named_queries_are_listed_and_asked_by_name(settings: Settings) -> None:
    with running_view(settings), httpx.Client(base_url=discover(settings, "view").address, timeout=60) as http:
        listed = {query["name"]: query for query in http.get("/v1/named-queries").json()["queries"]}
        assert listed.keys() == QUERIES.keys()
        assert {parameter["name"] for parameter in listed["stuck"]["parameters"]} == {"run", "seconds", "limit"}
        assert http.post("/v1/sql", json={"sql": ":stuck", "params": {"limit": 1}}).json()["rows"] == []
        for body, said in [
            ({"sql": ":stuk"}, "there is :stuck"),
            ({"sql": ":stuck", "params": {"rum": 1}}, "no parameter 'rum'"),
            ({"sql": ":stuck", "params": [1]}, "must be an object"),
        ]:
            answer = http.post("/v1/sql", json=body)
            assert (answer.status_code, said in answer.text) == (400, True), answer.text


def test_a_date_beyond_pythons_is_answered(settings: Settings, client: ViewClient) -> None:
    with running_view(settings):
        assert client.query("SELECT DATE '10000-01-01' AS day").rows == [["10000-01-01"]]


def test_arrow_is_answered_to_those_who_ask(settings: Settings) -> None:
    with running_view(settings):
        url = discover(settings, "view").address
        body = {"sql": "SELECT range AS x, [range] AS y FROM range(5000)", "rows_max": 4000}
        response = httpx.post(f"{url}/v1/sql", json=body, headers={"accept": ARROW}, timeout=60)
        assert response.headers["content-type"] == ARROW
        assert response.headers["x-lightstream-truncated"] == "true"
        table = pa.ipc.open_stream(response.content).read_all()
        assert table["x"].to_pylist() == list(range(4000))


def test_slow_queries_and_waiters_keep_nobody_waiting(settings: Settings, client: ViewClient) -> None:
    errors: list[Exception] = []

    def ask(sql: str, at_least: dict[str, dict[int, int]] | None) -> None:
        mine = ViewClient(settings)
        try:
            mine.query(sql, at_least, timeout_s=3.0, wait_s=3.0)
        except (QueryError, ServiceUnavailableError) as error:
            errors.append(error)
        finally:
            mine.close()

    publisher = KafkaPublisher(settings)
    with running_view(settings):
        threads = [threading.Thread(target=ask, args=(SLOW, None)) for _ in range(2)]
        threads += [threading.Thread(target=ask, args=("SELECT 1", {"spans": {0: 10**9}})) for _ in range(20)]
        for thread in threads:
            thread.start()
        written = publisher.publish(SPANS, "r1", proxy_span(1)).result(300)
        assert client.query("SELECT count(*) FROM spans", [written]).scalar() == 1
        for thread in threads:
            thread.join()
        assert len(errors) == len(threads)
    publisher.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly(number: signal.Signals, settings: Settings) -> None:
    process = start_view(settings)
    wait_until_ready(settings, process)
    process.send_signal(number)
    assert process.wait(300) == 0, output_path(settings).read_text()
    assert find(settings, "view") is None
    path = default_path(settings)
    assert path.exists()
    assert not Path(f"{path}.wal").exists(), "everything is in the one file, ready to be opened by other programs"


def test_a_second_server_says_who_has_the_file(settings: Settings) -> None:
    with running_view(settings) as first:
        second = start_view(settings)
        assert second.wait(300) == 1
        output = output_path(settings).read_text()
        assert f"is owned by process {first.pid}" in output
        assert "lightstream sql" in output
        assert find(settings, "view") is not None


def test_a_taken_port_is_named(settings: Settings) -> None:
    with running_view(settings):
        port = discover(settings, "view").address.rsplit(":", 1)[1]
        other = settings.model_copy(update={"view_port": int(port), "data_dir": settings.data_dir / "other"})
        process = start_view(other)
        assert process.wait(300) == 1
        assert "LIGHTSTREAM_VIEW_PORT" in output_path(other).read_text()


def test_it_may_listen_on_ipv6(settings: Settings) -> None:
    on_ipv6 = settings.model_copy(update={"host": "::1"})
    client = ViewClient(on_ipv6)
    with running_view(on_ipv6):
        assert discover(on_ipv6, "view").address.startswith("http://[::1]:")
        assert client.query("SELECT 1").scalar() == 1
    client.close()


def test_a_client_rides_out_a_restart(settings: Settings, client: ViewClient) -> None:
    with running_view(settings):
        assert client.query("SELECT 1").scalar() == 1
    answers: list[object] = []
    asking = threading.Thread(target=lambda: answers.append(client.query("SELECT 2").scalar()))
    asking.start()
    with running_view(settings):
        asking.join()
    assert answers == [2]


def test_without_a_server_a_client_says_how_to_start_one(settings: Settings) -> None:
    client = ViewClient(settings, patience_s=0.0)
    with pytest.raises(ServiceUnavailableError, match="lightstream view"):
        client.query("SELECT 1")
    client.close()
