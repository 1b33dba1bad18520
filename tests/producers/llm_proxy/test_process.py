"""The proxy as a process of its own: announced when ready, ended by SIGTERM only when its calls are done."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from lightstream.runtime.services import Service, find
from lightstream.runtime.settings import Settings
from tests.producers.llm_proxy.upstreams import ScriptedUpstream
from tests.producers.support import read_spans
from tests.support.waiting import eventually

RUN = (
    "from lightstream.runtime.settings import Settings; "
    "from lightstream.producers.llm_proxy import run; run(Settings.load())"
)
BODY: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}]}


@pytest.fixture
def process(settings: Settings, upstream_url: str, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    forwarding = settings.model_copy(update={"llm_upstream_url": upstream_url})
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", RUN], env=os.environ | forwarding.to_environment(), stdout=log, stderr=log
        )
    yield process
    process.kill()
    process.wait(120)


def _ready(settings: Settings, process: subprocess.Popen[bytes]) -> Service:
    def announced() -> Service | None:
        assert process.poll() is None, f"it ended with {process.returncode}"
        return find(settings, "proxy")

    service = eventually(announced)
    assert service is not None
    assert service.pid == process.pid
    return service


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_the_calls_under_way_finish(
    process: subprocess.Popen[bytes], settings: Settings, upstream: ScriptedUpstream, number: signal.Signals
) -> None:
    url = _ready(settings, process).address
    upstream.answer = lambda _: None

    async def ask_and_stop() -> int:
        async with httpx.AsyncClient(timeout=60) as client:
            asking = asyncio.ensure_future(client.post(f"{url}/v1/chat/completions", json=BODY))
            await asyncio.to_thread(eventually, lambda: upstream.asked)
            process.send_signal(number)
            upstream.go_on.set()
            return (await asking).status_code

    assert asyncio.run(ask_and_stop()) == 200
    assert process.wait(120) == 0
    assert len(read_spans(settings)) == 1
    assert find(settings, "proxy") is None


def test_a_killed_proxy_is_no_longer_found_and_a_new_one_takes_over(
    process: subprocess.Popen[bytes], settings: Settings, upstream_url: str
) -> None:
    _ready(settings, process)
    process.kill()
    process.wait(120)
    assert find(settings, "proxy") is None
    forwarding = settings.model_copy(update={"llm_upstream_url": upstream_url})
    with subprocess.Popen([sys.executable, "-c", RUN], env=os.environ | forwarding.to_environment()) as second:
        url = _ready(settings, second).address
        assert httpx.post(f"{url}/v1/chat/completions", json=BODY, timeout=60).status_code == 200
        second.terminate()
        assert second.wait(120) == 0
