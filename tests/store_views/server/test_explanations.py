"""Explanations over HTTP: in a lane, listed, limited and cancelled as statements are."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.types import Message

from lightstream.runtime.http.server import CLIENT_GONE
from lightstream.runtime.kafka import KafkaPublisher
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import NotFoundError
from lightstream.schemas.topics import ROLLOUTS
from lightstream.store_views.explain import AskRows, Explanation
from lightstream.store_views.materialiser import Materialiser
from lightstream.store_views.server import create_app, dashboard
from lightstream.store_views.server.admission import LaneSize
from lightstream.store_views.server.answering import Answering
from lightstream.store_views.server.statement import QueryLimits
from tests.store_views.test_accounting import state
from tests.store_views.test_materialiser import WAIT_S, catch_up, following, reflect

SLOW = "SELECT count(*) AS n FROM range(100000000000) AS a(x) WHERE x % 7 = 3"
PATH = "/v1/rollouts/r1/explain"


@pytest.fixture
def view(settings: Settings) -> Iterator[Materialiser]:
    publisher = KafkaPublisher(settings)
    written = publisher.publish(ROLLOUTS, "r1", state("r1")).result(WAIT_S)
    with following(settings) as view:
        reflect(view, written)
        yield view
    publisher.close()


@pytest.fixture
def endless(monkeypatch: pytest.MonkeyPatch) -> None:
    """Explanations that read and read."""

    def explain(ask: AskRows, rollout_id: str) -> Explanation:
        ask(SLOW)
        raise NotFoundError(f"{rollout_id} was not stopped")

    monkeypatch.setattr(dashboard, "explain", explain)


def asking(app: Starlette) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://view", timeout=600)


async def queries(http: httpx.AsyncClient) -> list[dict[str, Any]]:
    return list((await http.get("/v1/queries")).json()["queries"])


async def running(http: httpx.AsyncClient) -> dict[str, Any]:
    """The statement that runs, once there is one."""
    async with asyncio.timeout(WAIT_S):
        while True:
            if found := [query for query in await queries(http) if query["state"] == "running"]:
                return found[0]
            await asyncio.sleep(0.02)


async def test_an_answer_says_whether_rows_are_missing(view: Materialiser) -> None:
    catch_up(view)
    async with asking(create_app(view)) as http:
        answer = await http.get(PATH)
        assert (answer.status_code, answer.headers["x-lightstream-rebuilding"]) == (200, "false")
        found = answer.json()
        assert (found["rollout"]["rollout_id"], found["rebuilding"]) == ("r1", False)
        missing = await http.get(PATH.replace("r1", "r2"))
        assert (missing.status_code, missing.json()["error"]["type"]) == (404, "NotFoundError")
        wrong = await http.get(PATH, headers={"x-lightstream-lane": "nobody"})
        assert (wrong.status_code, "nobody" in wrong.text) == (400, True)


@pytest.mark.usefixtures("endless")
async def test_it_is_listed_and_cancelled(view: Materialiser) -> None:
    async with asking(create_app(view)) as http:
        asked = asyncio.create_task(http.get(PATH))
        found = await running(http)
        assert (found["sql"], found["lane"]) == ("lightstream explain r1", "dashboard")
        assert (await http.delete(f"/v1/queries/{found['query_id']}")).status_code == 200
        answer = await asked
        assert (answer.status_code, answer.json()["error"]["message"]) == (400, "the statement was cancelled.")
        assert await queries(http) == []


@pytest.mark.usefixtures("endless")
async def test_it_ends_when_its_time_is_over(view: Materialiser) -> None:
    async with asking(create_app(view, QueryLimits(timeout_s=0.1))) as http:
        answer = await http.get(PATH)
    assert (answer.status_code, "longer than 0.1 s" in answer.text) == (400, True)
    assert "Ask again" in answer.json()["error"]["next_step"], "there is no statement to narrow"


@pytest.mark.usefixtures("endless")
async def test_a_client_that_hangs_up_ends_it(view: Materialiser) -> None:
    app = create_app(view)
    hung_up, sent = asyncio.Event(), list[Message]()

    async def receive() -> Message:
        await hung_up.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "GET", "path": PATH, "query_string": b"", "headers": []}
    async with asking(app) as http:
        asked = asyncio.create_task(app(scope, receive, send))
        await running(http)
        hung_up.set()
        await asked
        assert sent[0]["status"] == CLIENT_GONE
        assert await queries(http) == []


@pytest.mark.usefixtures("endless")
async def test_a_full_lane_refuses_and_keeps_no_other_waiting(view: Materialiser) -> None:
    size = LaneSize(at_once=1, waiting_max=0, catching_up_max=1)
    answering = Answering(view.database.cursor, sizes={"dashboard": size, "stores": size})
    async with asking(create_app(view, answering=answering)) as http:
        asked = asyncio.create_task(http.get(PATH))
        found = await running(http)
        refused = await http.get(PATH)
        assert (refused.status_code, "'dashboard' is full" in refused.text) == (503, True)
        other = await http.post("/v1/sql", json={"sql": "SELECT 42"}, headers={"x-lightstream-lane": "stores"})
        assert other.json()["rows"] == [[42]]
        await http.delete(f"/v1/queries/{found['query_id']}")
        await asked
