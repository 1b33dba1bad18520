"""`lightstream store`: the store on Kafka, served by a process that may be killed."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from lightstream.runtime.processes import child_environment
from lightstream.runtime.services import find
from lightstream.runtime.settings import Settings
from lightstream.store_views.stores import KafkaLightningStore
from lightstream.store_views.stores.http import LightningStoreClient
from lightstream.up import Stack
from tests.support.waiting import eventually

T = TypeVar("T")


@pytest.fixture
def stack(settings: Settings) -> Iterator[Settings]:
    """Topics, a worker and a view; the token that the store server asks for."""
    with Stack(settings.model_copy(update={"store_token": None}), services=["worker", "view"]) as running:
        yield Settings.load(**dict(running.settings) | {"store_token": "secret"})


def serve(settings: Settings, *program: str) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-m", *(program or ("lightstream.cli", "store"))],
        env=child_environment(settings),
        stderr=subprocess.PIPE,
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


DYING = "tests.store_views.stores_http.dying_server"


def test_a_server_killed_between_a_write_and_its_answer_has_written_once(stack: Settings) -> None:
    client = LightningStoreClient(settings=stack)
    processes = [serve(stack, DYING, "add_resources")]

    async def in_spite_of_a_kill(call: Coroutine[Any, Any, T], *next_server: str) -> T:
        """The answer, which comes from the server that is started after the kill."""
        answer = asyncio.ensure_future(call)
        assert await asyncio.to_thread(processes[-1].wait, 60) == -signal.SIGKILL
        assert not answer.done()
        processes.append(await asyncio.to_thread(serve, stack, *next_server))
        return await answer

    async def scenario() -> None:
        resources = await in_spite_of_a_kill(client.add_resources({}), DYING, "enqueue_many_rollouts")
        queued = await in_spite_of_a_kill(client.enqueue_rollout({"task": 1}), DYING, "start_rollout")
        started = await in_spite_of_a_kill(client.start_rollout({"task": 2}), DYING, "start_attempt")
        again = await in_spite_of_a_kill(client.start_attempt(started.rollout_id))
        store = KafkaLightningStore(stack)
        await store.start()
        assert list(await store.query_resources()) == [resources]
        kept = {rollout.rollout_id: rollout for rollout in await store.query_rollouts()}
        assert set(kept) == {queued.rollout_id, started.rollout_id}
        assert (queued.resources_id, queued.status) == (resources.resources_id, "queuing")
        attempts = await store.query_attempts(started.rollout_id)
        assert [a.attempt_id for a in attempts] == [started.attempt.attempt_id, again.attempt.attempt_id]
        assert kept[started.rollout_id] == again
        await store.close()
        await client.close()

    try:
        asyncio.run(scenario())
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


def test_a_store_in_memory_needs_no_kafka(tmp_path: Path) -> None:
    settings = Settings.load(data_dir=tmp_path, kafka_bootstrap_servers="127.0.0.1:9")
    process = serve(settings, "lightstream.cli", "store", "--memory", "--port", "0")

    async def scenario() -> None:
        client = LightningStoreClient(settings=settings)
        await client.start()
        made = await client.enqueue_rollout({"task": 1})
        taken = await client.dequeue_rollout("w")
        assert taken is not None
        await client.update_attempt(made.rollout_id, taken.attempt.attempt_id, "succeeded")
        (ended,) = await client.wait_for_rollouts(rollout_ids=[made.rollout_id], timeout=120)
        assert ended.status == "succeeded"
        await client.close()

    try:
        asyncio.run(scenario())
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
        assert (process.returncode, b"Traceback" in errors) == (0, False), errors.decode()
    finally:
        process.kill()
