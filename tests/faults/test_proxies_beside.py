"""Proxies and store servers in other processes come, go and are killed: the stack's own keep their names and calls."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from lightstream.runtime.http.server import HttpServer
from lightstream.runtime.services import find
from lightstream.runtime.settings import Settings
from lightstream.trainers.servers.following import check_proxy
from lightstream.up import Stack
from tests.frameworks.model_server import ScriptedModel, task_of

PROXY = """
import asyncio, sys
from lightstream.producers import LLMProxy

async def main():
    proxy = LLMProxy(port=0, model_list=[])
    await proxy.start()
    print("serves", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await proxy.stop()

asyncio.run(main())
"""
STORE = """
import asyncio, sys
from lightstream.trainers import InMemoryLightningStore, LightningStoreServer

async def main():
    server = LightningStoreServer(InMemoryLightningStore(), "127.0.0.1", 0)
    await server.start()
    print("serves", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await server.stop()

asyncio.run(main())
"""


@pytest.fixture
def model(tmp_path: Path) -> Iterator[str]:
    """Address of a model server."""
    server = HttpServer(ScriptedModel().app, Settings.load(data_dir=tmp_path), name="model", announced=False)
    server.start()
    yield server.url
    server.stop()


@pytest.mark.parametrize("rounds", [2, pytest.param(20, marks=pytest.mark.soak)])
def test_the_stacks_proxy_keeps_its_name_and_every_call(tmp_path: Path, model: str, rounds: int) -> None:
    settings = Settings.load(data_dir=tmp_path, llm_upstream_url=f"{model}/v1")
    with Stack(settings, services=("worker", "proxy")) as stack:
        own = find(stack.settings, "proxy")
        assert own is not None
        done, statuses = threading.Event(), list[int]()

        def call() -> None:
            body = {"model": "m", "messages": [{"role": "user", "content": task_of("r1")}]}
            with httpx.Client(timeout=60) as client:
                while not done.is_set():
                    statuses.append(client.post(f"{own.address}/v1/chat/completions", json=body).status_code)

        caller = threading.Thread(target=call)
        caller.start()
        try:
            for number in range(rounds):
                for program in (PROXY, STORE):
                    come_and_go(stack.settings, program, is_killed=number % 2 == 1)
                    check_proxy(stack.settings)
                    assert find(stack.settings, "proxy") == own
                    assert find(stack.settings, "store") is None
        finally:
            done.set()
            caller.join()
        assert statuses
        assert set(statuses) == {200}


def come_and_go(settings: Settings, program: str, *, is_killed: bool) -> None:
    """Run it until it serves, and end it."""
    with subprocess.Popen(
        [sys.executable, "-c", program],
        env=os.environ | settings.to_environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "serves\n"
        if is_killed:
            process.kill()
        else:
            process.communicate("")
            assert process.returncode == 0
