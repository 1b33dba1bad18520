"""`lightstream store`: the store on Kafka, served by a process that may be killed."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lightstream.schemas.services import find
from lightstream.schemas.settings import Settings
from lightstream.store_views.stores.http import LightningStoreClient
from lightstream.up import Stack
from lightstream.up.unit import child_environment
from tests.support.waiting import eventually


@pytest.fixture
def stack(settings: Settings) -> Iterator[Settings]:
    """Topics, a worker and a view; the token that the store server asks for."""
    with Stack(settings.model_copy(update={"store_token": None}), services=["worker", "view"]) as running:
        yield Settings.load(**dict(running.settings) | {"store_token": "secret"})


def serve(settings: Settings) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-m", "lightstream.cli", "store"], env=child_environment(settings), stderr=subprocess.PIPE
    )
    eventually(lambda: process.poll() is not None or is_announced(settings, process.pid))
    assert process.poll() is None, process.stderr and process.stderr.read().decode()
    return process


def is_announced(settings: Settings, pid: int) -> bool:
    service = find(settings, "store")
    return service is not None and service.pid == pid


def test_a_client_does_not_notice_that_the_server_is_killed(stack: Settings) -> None:
    async def scenario() -> None:
        client = LightningStoreClient(settings=stack)
        await client.start()
        made = await client.enqueue_rollout({"task": 1})
        taken = await client.dequeue_rollout("w", timeout_s=60)
        assert taken is not None
        assert taken.rollout_id == made.rollout_id
        waiting = asyncio.ensure_future(client.wait_for_rollouts(rollout_ids=[made.rollout_id], timeout=120))
        await client.get_latest_resources()
        processes[0].kill()
        ending = asyncio.ensure_future(client.update_attempt(made.rollout_id, taken.attempt.attempt_id, "succeeded"))
        await asyncio.to_thread(processes[0].wait)
        processes.append(await asyncio.to_thread(serve, stack))
        assert (await ending).status == "succeeded"
        assert [rollout.status for rollout in await waiting] == ["succeeded"]
        await client.close()

    processes = [serve(stack)]
    try:
        asyncio.run(scenario())
        processes[-1].send_signal(signal.SIGTERM)
        _, errors = processes[-1].communicate(timeout=60)
        assert processes[-1].returncode == 0, errors.decode()
        assert b"Traceback" not in errors, errors.decode()
        assert find(stack, "store") is None
    finally:
        for process in processes:
            process.kill()


def test_without_kafka_it_says_so(tmp_path: Path) -> None:
    settings = Settings.load(data_dir=tmp_path, kafka_bootstrap_servers="127.0.0.1:9")
    done = subprocess.run(
        [sys.executable, "-m", "lightstream.cli", "store"],
        env=child_environment(settings),
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 1
    assert "Kafka does not answer" in done.stderr.rpartition("Error:")[2]
