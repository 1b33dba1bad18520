"""The dashboard of a store in memory: its server answers SQL and pages beside the store's interface."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from lightstream.runtime.settings import Settings
from lightstream.schemas.types import PromptTemplate, Span
from lightstream.store_views.server.of_memory import MemoryDashboard
from lightstream.store_views.stores import InMemoryLightningStore
from lightstream.store_views.stores.http import LightningStoreServer
from lightstream.stream_processors.core.lifecycle import Limits

TOKEN = "a token of the store's"  # of this test


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary files of this process are made."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
def settings(folder: Path) -> Settings:
    return Settings.load(data_dir=folder / "data", store_token=TOKEN)


@pytest.fixture
async def server(settings: Settings) -> AsyncIterator[LightningStoreServer]:
    store = InMemoryLightningStore(limits=Limits.of(settings))
    server = LightningStoreServer(store, "127.0.0.1", 0, settings=settings, pages=MemoryDashboard)
    await server.start()
    yield server
    await server.stop()
    await store.close()


@pytest.fixture
async def client(server: LightningStoreServer) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(
        base_url=server.endpoint, headers={"authorization": f"Bearer {TOKEN}"}, timeout=60
    ) as client:
        yield client


async def _rows(client: httpx.AsyncClient, sql: str) -> list[list[Any]]:
    answer = await client.post("/v1/sql", json={"sql": sql, "at_least": "now"})
    assert answer.status_code == 200, answer.text
    rows: list[list[Any]] = answer.json()["rows"]
    return rows


async def _fill(server: LightningStoreServer, number: int) -> str:
    """One finished rollout with a span, a worker and resources."""
    begun = await server.start_rollout({"number": number}, mode="train")
    attempt = begun.attempt.attempt_id
    span = Span.from_attributes(
        rollout_id=begun.rollout_id, attempt_id=attempt, sequence_id=1, name="step", attributes={"number": number}
    )
    await server.add_span(span)
    await server.update_worker(f"w{number}", {"number": number})
    await server.update_resources(f"v{number}", {"prompt": PromptTemplate(template="{x}", engine="f-string")})
    await server.update_attempt(begun.rollout_id, attempt, status="succeeded")
    return begun.rollout_id


async def test_sql_shows_what_the_store_has(server: LightningStoreServer, client: httpx.AsyncClient) -> None:
    """Of before the first question, and of after it."""
    early = [await _fill(server, number) for number in range(3)]
    shown = "SELECT rollout_id, status, mode FROM rollouts ORDER BY enqueued_unix_nano"
    assert await _rows(client, shown) == [[rollout, "succeeded", "train"] for rollout in early]
    late = await _fill(server, 3)
    waiting = await server.enqueue_rollout("later")
    assert await _rows(client, shown) == [
        *([rollout, "succeeded", "train"] for rollout in [*early, late]),
        [waiting.rollout_id, "queuing", "unknown"],
    ]
    spans = await _rows(client, "SELECT rollout_id, name, attributes->>'number' FROM spans ORDER BY 3")
    assert spans == [[rollout, "step", str(number)] for number, rollout in enumerate([*early, late])]
    assert await _rows(client, "SELECT worker_id FROM workers ORDER BY 1") == [[f"w{number}"] for number in range(4)]
    assert await _rows(client, "SELECT resources_id FROM resources ORDER BY 1") == [[f"v{n}"] for n in range(4)]
    explained = await client.get(f"/v1/rollouts/{late}/explain")
    assert explained.json()["rollout"]["status"] == "succeeded"


async def test_the_stores_own_interface_stays(server: LightningStoreServer, client: httpx.AsyncClient) -> None:
    rollout = await server.enqueue_rollout("x")
    answer = await client.get("/v1/agl/rollouts", headers={"accept": "*/*"})
    assert [item["rollout_id"] for item in answer.json()["items"]] == [rollout.rollout_id]
    assert (await client.get("/v1/agl/nothing")).status_code == 404
    assert (await client.post("/v1/traces", content=b"")).status_code == 501


async def test_the_page_is_for_browsers(client: httpx.AsyncClient) -> None:
    page = await client.get("/", headers={"accept": "text/html,*/*"})
    assert (page.status_code, page.headers["content-type"].partition(";")[0]) == (200, "text/html")
    assert (await client.get("/", headers={"accept": "*/*"})).status_code == 404


@pytest.mark.parametrize("path", ["sql", "queries", "positions", "named-queries", "reasons", "changes"])
async def test_it_asks_for_the_stores_token(server: LightningStoreServer, path: str) -> None:
    async with httpx.AsyncClient(base_url=server.endpoint, headers={"authorization": "Bearer another"}) as client:
        method = "POST" if path == "sql" else "GET"
        assert (await client.request(method, f"/v1/{path}", json={"sql": "SELECT 1"})).status_code == 401


async def test_a_listener_hears_of_new_rollouts(server: LightningStoreServer, client: httpx.AsyncClient) -> None:
    async with client.stream("GET", "/v1/changes") as stream:
        events = (json.loads(line[6:]) async for line in stream.aiter_lines() if line.startswith("data: "))
        await anext(events)
        await server.enqueue_rollout("x")
        while "rollouts" not in (await anext(events))["positions"]:
            pass
        await asyncio.wait_for(server.stop(), 300)  # with a listener that stays


def _files(folder: Path) -> list[str]:
    return [file.name for file in folder.glob("lightstream-view-*/*.duckdb")]


async def test_its_file_is_deleted_with_the_server(
    server: LightningStoreServer, client: httpx.AsyncClient, folder: Path
) -> None:
    assert _files(folder) == [], "made when it is asked for"
    await _rows(client, "SELECT 1")
    assert _files(folder) == ["view.duckdb"]
    await server.stop()
    assert _files(folder) == []
    await server.start()
    await _fill(server, 1)
    assert await _rows(client, "SELECT count(*) FROM rollouts") == [[1]], "a server that starts again shows it again"
