"""The dashboard in a real browser, at the server of a store in memory. Run by `make test-dashboard`."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import pytest
from playwright.sync_api import Page, expect

from lightstream.runtime.settings import Settings
from lightstream.schemas.types import Span
from lightstream.store_views.server.of_memory import MemoryDashboard
from lightstream.store_views.stores import InMemoryLightningStore
from lightstream.store_views.stores.http import LightningStoreServer
from tests.store_views.dashboard.conftest import open_page

T = TypeVar("T")

pytestmark = pytest.mark.dashboard

PATHS = ("/", "/run?run=r", "/rollouts?run=r", "/training?run=r", "/resources", "/losses?run=r", "/processes", "/sql")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LightningStoreServer]:
    store = InMemoryLightningStore()
    server = LightningStoreServer(
        store, "127.0.0.1", 0, settings=Settings.load(data_dir=tmp_path), pages=MemoryDashboard
    )
    _run(server.start())
    yield server
    _run(server.stop())
    _run(store.close())


def _run(work: Coroutine[Any, Any, T]) -> T:
    """Run it in a thread of its own: the browser's client has an event loop in this one."""
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(asyncio.run, work).result()


async def _rolled_out(server: LightningStoreServer) -> str:
    begun = await server.start_rollout({"question": "of the first"}, mode="train", run_id="r")
    attempt = begun.attempt.attempt_id
    await server.add_span(
        Span.from_attributes(
            rollout_id=begun.rollout_id, attempt_id=attempt, sequence_id=1, name="a step of the agent", attributes={}
        )
    )
    await server.update_attempt(begun.rollout_id, attempt, status="succeeded")
    return begun.rollout_id


def test_pages_show_a_store_in_memory(server: LightningStoreServer, page: Page) -> None:
    rollout = _run(_rolled_out(server))
    for path in PATHS:
        open_page(page, f"{server.endpoint}{path}")
    open_page(page, f"{server.endpoint}/rollouts?run=r")
    page.get_by_text(rollout).first.click()
    expect(page.get_by_text("a step of the agent").first).to_be_visible()
    open_page(page, f"{server.endpoint}/rollouts?run=r")
    later = _run(_rolled_out(server))
    expect(page.get_by_text(later).first).to_be_visible()  # which nobody loaded again
