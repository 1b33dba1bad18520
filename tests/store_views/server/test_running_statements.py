"""Statements of a server that runs: listed, cancelled, and kept apart by their lanes."""

from __future__ import annotations

import asyncio
import io
import json
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import httpx
import pyarrow.parquet as pq
import pytest
from starlette.types import Message

from lightstream.runtime.http.server import CLIENT_GONE
from lightstream.runtime.kafka import KafkaPublisher
from lightstream.runtime.services import discover
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import QueryError, ServiceUnavailableError
from lightstream.schemas.topics import SPANS
from lightstream.store_views.client import AsyncViewClient, ViewClient
from lightstream.store_views.server import create_app
from lightstream.store_views.server.admission import Lane, LaneSize
from lightstream.store_views.server.answering import Answering
from tests.store_views.test_materialiser import WAIT_S, following
from tests.store_views.view_process import running_view
from tests.stream_processors.assembly.build import proxy_span
from tests.support.waiting import eventually

SLOW = "SELECT count(*) FROM range(100000000000) AS a(x) WHERE x % 7 = 3"


@pytest.fixture
def http(settings: Settings) -> Iterator[httpx.Client]:
    with running_view(settings), httpx.Client(base_url=discover(settings, "view").address, timeout=60) as client:
        yield client


def in_thread(work: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(work()))
    thread.start()
    return thread, found


def queries(http: httpx.Client) -> list[dict[str, Any]]:
    """Of people: the view's own, about releases, come and go."""
    listed: list[dict[str, Any]] = http.get("/v1/queries").json()["queries"]
    return [query for query in listed if not query["sql"].endswith(" of releases")]


def is_running(http: httpx.Client, query_id: str) -> bool:
    return any(query["query_id"] == query_id and query["state"] == "running" for query in queries(http))


def test_a_statement_is_listed_and_cancelled(http: httpx.Client) -> None:
    body = {"sql": SLOW, "query_id": "mine", "timeout_s": 600}
    asking, answers = in_thread(
        lambda: http.post("/v1/sql", json=body, headers={"x-lightstream-lane": "dashboard"}, timeout=600)
    )
    eventually(lambda: is_running(http, "mine"), what="the statement")
    (query,) = queries(http)
    assert (query["sql"], query["lane"]) == (SLOW, "dashboard")
    assert query["seconds"] >= 0
    twice = http.post("/v1/sql", json={"sql": "SELECT 1", "query_id": "mine"})
    assert (twice.status_code, "runs already" in twice.json()["error"]["message"]) == (400, True)
    assert http.delete("/v1/queries/mine").status_code == 200
    asking.join()
    assert answers[0].status_code == 400
    assert answers[0].json()["error"]["message"] == "the statement was cancelled."
    assert queries(http) == []
    gone = http.delete("/v1/queries/mine")
    assert (gone.status_code, "GET /v1/queries" in gone.json()["error"]["next_step"]) == (404, True)
    answered = http.post("/v1/sql", json={"sql": "SELECT 1"})
    assert len(answered.headers["x-lightstream-query-id"]) == 32


async def test_a_client_that_hangs_up_cancels_its_statement(settings: Settings) -> None:
    with running_view(settings), httpx.Client(base_url=discover(settings, "view").address, timeout=60) as http:
        client = AsyncViewClient(settings)
        asking = asyncio.ensure_future(client.query(SLOW, timeout_s=600.0))
        await asyncio.to_thread(eventually, lambda: [q for q in queries(http) if q["state"] == "running"], what="it")
        asking.cancel()
        await asyncio.to_thread(eventually, lambda: not queries(http), what="the end of the statement")
        await client.close()


def test_a_full_lane_is_told_apart_from_others(http: httpx.Client, settings: Settings) -> None:
    def ask_slowly(number: int) -> httpx.Response:
        body = {"sql": SLOW, "query_id": f"q{number}", "timeout_s": 600}
        return http.post("/v1/sql", json=body, timeout=600)

    threads = [in_thread(partial(ask_slowly, number)) for number in range(4)]
    eventually(lambda: all(is_running(http, f"q{n}") for n in range(4)), what="four statements")
    waiting = in_thread(lambda: ViewClient(settings).query("SELECT 5").scalar())
    stores = ViewClient(settings, lane="stores")
    assert stores.query("SELECT 42").scalar() == 42
    for n in range(4):
        http.delete(f"/v1/queries/q{n}")
    for thread, _ in [*threads, waiting]:
        thread.join()
    assert waiting[1] == [5]
    with pytest.raises(QueryError, match=r"'nobody's'|nobody"):
        ViewClient(settings, lane="nobody").query("SELECT 1")


async def test_a_lane_refuses_who_would_wait_too_long() -> None:
    lane = Lane("others", LaneSize(at_once=1, waiting_max=1, catching_up_max=1))
    await lane.enter()
    second = asyncio.ensure_future(lane.enter())
    await asyncio.sleep(0)
    with pytest.raises(
        ServiceUnavailableError, match=r"'others' is full: 1 statements run and 1 wait.*GET /v1/queries"
    ):
        await lane.enter()
    lane.leave()
    await second
    cancelled = asyncio.ensure_future(lane.enter())
    await asyncio.sleep(0)
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    lane.leave()
    await lane.enter()


async def test_strangers_that_wait_for_the_view_leave_stores_their_places(settings: Settings) -> None:
    size = LaneSize(at_once=1, waiting_max=1, catching_up_max=2)
    publisher = KafkaPublisher(settings)
    with following(settings) as view:
        answering = Answering(view.database.cursor, sizes={"stores": size, "others": size})
        transport = httpx.ASGITransport(create_app(view, answering=answering))
        async with httpx.AsyncClient(transport=transport, base_url="http://view") as http:

            def ask(offset: int, partition: int, lane: str) -> asyncio.Task[httpx.Response]:
                body = {"sql": "SELECT 42", "at_least": {"spans": {partition: offset}}, "wait_s": 3600}
                headers = {"x-lightstream-lane": lane}
                return asyncio.create_task(http.post("/v1/sql", json=body, headers=headers, timeout=None))

            strangers = {ask(10**9, 0, "others") for _ in range(4)}
            refused, waiting = await asyncio.wait(strangers, return_when=asyncio.FIRST_COMPLETED)
            (answer,) = [task.result() for task in refused]
            assert (answer.status_code, len(waiting)) == (503, 3)
            said = answer.json()["error"]["message"]
            assert said == "the lane 'others' is full: 2 requests wait for the view to catch up and 1 wait."
            plain = await http.post("/v1/sql", json={"sql": "SELECT 42"}, timeout=None)
            assert plain.json()["rows"] == [[42]], "who waits for nothing needs no such place"
            written = await asyncio.wrap_future(publisher.publish(SPANS, "r1", proxy_span(1)))
            found = await ask(written.offset, written.partition, "stores")
            assert found.json()["rows"] == [[42]]
            view.positions.close("the test is over")
            assert {task.result().status_code for task in (await asyncio.wait(strangers))[0]} == {503}
    publisher.close()


async def test_a_client_that_hangs_up_while_it_waits_for_the_view_gives_its_place_back(settings: Settings) -> None:
    size = LaneSize(at_once=1, waiting_max=0, catching_up_max=1)
    body = json.dumps({"sql": "SELECT 42", "at_least": {"spans": {0: 10**9}}, "wait_s": 3600}).encode()
    headers = [(b"host", b"view"), (b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": "/v1/sql", "query_string": b"", "headers": headers}
    hung_up, sent = asyncio.Event(), list[Message]()
    received = iter([{"type": "http.request", "body": body}])

    async def receive() -> Message:
        if (message := next(received, None)) is not None:
            return message
        await hung_up.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    with following(settings) as view:
        answering = Answering(view.database.cursor, sizes={"others": size})
        places = answering.lanes["others"].catching_up
        asked = asyncio.create_task(create_app(view, answering=answering)(scope, receive, send))
        async with asyncio.timeout(WAIT_S):
            while True:
                if places.are_taken:
                    break
                await asyncio.sleep(0.02)
        hung_up.set()
        await asked
        assert not places.are_taken
        assert sent[0]["status"] == CLIENT_GONE


def test_the_form_is_as_asked(http: httpx.Client) -> None:
    sql = "SELECT range AS i FROM range(3)"
    for asked, headers, kind in [
        ({"format": "csv"}, {}, "text/csv"),
        ({}, {"accept": "application/x-ndjson"}, "application/x-ndjson"),
        ({"format": "ndjson"}, {"accept": "text/csv"}, "application/x-ndjson"),
        ({"format": "parquet"}, {}, "application/vnd.apache.parquet"),
        ({}, {}, "application/json"),
    ]:
        answer = http.post("/v1/sql", json={"sql": sql, **asked}, headers=headers)
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith(kind)
    parquet = http.post("/v1/sql", json={"sql": sql, "format": "parquet"})
    assert pq.read_table(io.BytesIO(parquet.content))["i"].to_pylist() == [0, 1, 2]
    assert http.post(
        "/v1/sql", json={"sql": "SELECT 2::BIGINT ** 1, 9007199254740993 AS n", "integers": "text"}
    ).json()["rows"] == [[2.0, "9007199254740993"]]
    for wrong in (
        {"format": "xml"},
        {"integers": "exact"},
        {"query_id": 1},
        {"query_id": "a b"},
        {"query_id": "x" * 65},
    ):
        refused = http.post("/v1/sql", json={"sql": sql, **wrong})
        assert refused.status_code == 400
        assert next(iter(wrong)) in refused.json()["error"]["message"]
    empty = http.post("/v1/sql", json={"sql": "SELECT INTERVAL 1 MONTH", "format": "parquet"})
    assert (empty.status_code, empty.json()["error"]["type"]) == (400, "QueryError")
