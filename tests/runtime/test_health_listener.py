"""A process whose event loop computes is alive; one whose loop stands still is not."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lightstream.runtime.http import health_listener
from lightstream.runtime.http.server import HttpServer
from lightstream.runtime.services import find
from lightstream.runtime.settings import Settings
from tests.support.waiting import eventually


class Loop:
    """Routes that keep the event loop from turning until they are let go: by computing, or by waiting."""

    def __init__(self) -> None:
        self.go_on = threading.Event()
        self.is_there = threading.Event()
        self.app = Starlette(routes=[Route("/compute", self.compute), Route("/stand", self.stand)])

    async def compute(self, _: Request) -> Response:
        self.is_there.set()
        while not self.go_on.is_set():
            sum(range(1000))
        return Response()

    async def stand(self, _: Request) -> Response:
        self.is_there.set()
        self.go_on.wait()
        return Response()


@pytest.fixture
def loop() -> Iterator[Loop]:
    made = Loop()
    yield made
    made.go_on.set()


def health_of(settings: Settings) -> str:
    service = find(settings, "test")
    assert service is not None
    assert service.health not in ("", service.address)
    return service.health


@pytest.mark.parametrize("route", ["/compute", "/stand"])
def test_a_loop_that_computes_is_alive_and_one_that_stands_is_not(tmp_path: Path, loop: Loop, route: str) -> None:
    settings = Settings.load(data_dir=tmp_path)
    server = HttpServer(loop.app, settings, name="test", ready=[lambda: "not yet"])
    url = server.start()
    health = health_of(settings)
    asking = threading.Thread(target=lambda: httpx.get(f"{url}{route}", timeout=600), daemon=True)
    try:
        assert httpx.get(f"{health}/healthz").status_code == 200
        assert httpx.get(f"{health}/readyz").json()["reasons"] == ["not yet"]
        assert "lightstream_disk_free_bytes{" in httpx.get(f"{health}/metrics").text
        asking.start()
        assert loop.is_there.wait(300)
        httpx.get(f"{health}/healthz", timeout=60)  # the first question may find time from before in the account
        answer = httpx.get(f"{health}/healthz", timeout=60)
        if route == "/compute":
            assert answer.status_code == 200
        else:
            assert answer.status_code == 503
            assert answer.json()["reasons"][0].startswith("the event loop has not turned for ")
        loop.go_on.set()
        eventually(lambda: httpx.get(f"{health}/healthz", timeout=60).status_code == 200, what="it turns again")
    finally:
        loop.go_on.set()
        server.stop()
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{health}/healthz")


def test_a_loop_that_computes_for_ever_is_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health_listener, "BUSY_S_MAX", 0.0)
    monkeypatch.setattr(health_listener, "TURN_TIMEOUT_S", 0.1)
    made: list[health_listener.LoopTurns] = []
    go_on = threading.Event()

    async def endless() -> None:
        made.append(health_listener.LoopTurns(asyncio.get_running_loop()))
        while not go_on.is_set():
            time.perf_counter()

    thread = threading.Thread(target=lambda: asyncio.run(endless()))
    thread.start()
    try:
        (turns,) = eventually(lambda: made, what="the loop runs")
        assert "has not turned" in str(turns())
    finally:
        go_on.set()
        thread.join()
