"""A request that has to be sent again: restarts of the server, and keys that come twice."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from lightstream.schemas.errors import ServiceUnavailableError
from lightstream.schemas.types import AttemptedRollout, EnqueueRolloutRequest, Rollout, Span
from lightstream.store_views.stores import InMemoryLightningStore
from lightstream.store_views.stores.http import LightningStoreClient, LightningStoreServer
from lightstream.store_views.stores.http._answers import Answer, AnswerMemory

from .support import local_settings, served

ENQUEUE = {"rollouts": [{"input": 1}]}


class HeldStore(InMemoryLightningStore):
    """Enqueues when it is told to, and tells that it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.was_asked = threading.Semaphore(0)
        self.may_go_on = threading.Event()

    async def enqueue_many_rollouts(self, rollouts: Sequence[EnqueueRolloutRequest]) -> Sequence[Rollout]:
        self.was_asked.release()
        await asyncio.to_thread(self.may_go_on.wait)
        return await super().enqueue_many_rollouts(rollouts)


def test_a_repeated_key_gets_the_first_answer(wire: httpx.Client, behind: InMemoryLightningStore) -> None:
    key = {"idempotency-key": "k1"}
    first = wire.post("/queues/rollouts/enqueue", json=ENQUEUE, headers=key)
    again = wire.post("/queues/rollouts/enqueue", json=ENQUEUE, headers=key)
    assert (again.status_code, again.json()) == (first.status_code, first.json())
    other = wire.post("/queues/rollouts/enqueue", json=ENQUEUE, headers={"idempotency-key": "k2"})
    assert other.json() != first.json()
    assert len(behind.history()) == 2
    refused = wire.post("/queues/rollouts/enqueue", json={"rollouts": []}, headers=key)
    assert refused.status_code == 400
    assert "'k1' was used for a different request" in refused.json()["detail"]
    assert (
        wire.post("/queues/rollouts/enqueue", json=ENQUEUE, headers={"idempotency-key": "k" * 300}).status_code == 400
    )
    assert len(behind.history()) == 2


def test_a_repeated_key_waits_for_the_first_that_is_under_way(tmp_path: Path) -> None:
    behind = HeldStore()
    with served(behind, local_settings(tmp_path)) as server, ThreadPoolExecutor(2) as threads:
        url, key = f"{server.endpoint}/v1/agl/queues/rollouts/enqueue", {"idempotency-key": "k"}
        first = threads.submit(httpx.post, url, json=ENQUEUE, headers=key, timeout=60)
        assert behind.was_asked.acquire(timeout=60)
        second = threads.submit(httpx.post, url, json=ENQUEUE, headers=key, timeout=60)
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(
                url, json=ENQUEUE, headers=key, timeout=httpx.Timeout(60, read=0.3)
            )  # a client that disconnects ends nothing
        behind.may_go_on.set()
        assert first.result().json() == second.result().json()
    assert len(behind.history()) == 1
    asyncio.run(behind.close())


async def test_the_memory_of_answers_is_bounded_and_failures_are_not_kept() -> None:
    memory = AnswerMemory(answers_max=3, answer_bytes_max=100)
    asked: list[str] = []

    async def ask(key: str, status: int = 200, size_bytes: int = 10) -> None:
        async def do() -> Answer:
            asked.append(key)
            return Answer(b"x" * size_bytes, status)

        await memory.once(key, b"", do)

    for key in "abcd":
        await ask(key)
    assert len(memory) == 3
    await ask("d")
    assert asked == ["a", "b", "c", "d"]
    await ask("a")
    assert asked[-1] == "a", "the oldest was forgotten"
    await ask("large", size_bytes=95)
    assert len(memory) == 1
    await ask("failed", status=503)
    await ask("failed")
    assert asked[-2:] == ["failed", "failed"]


def test_waits_and_writes_outlive_a_restart_of_the_server(tmp_path: Path) -> None:
    """On Kafka a restarted server finds the same log; here both servers share a store in memory."""
    behind = InMemoryLightningStore()
    settings = local_settings(tmp_path)

    async def scenario(client: LightningStoreClient) -> list[Any]:
        rollout = await client.enqueue_rollout(1)
        waiting = asyncio.ensure_future(client.wait_for_rollouts(rollout_ids=[rollout.rollout_id], timeout=120))
        resources = asyncio.ensure_future(client.get_latest_resources(timeout_s=120))
        taken = await client.dequeue_rollout("w")
        assert taken is not None
        dequeueing = asyncio.ensure_future(client.dequeue_rollout("w2", timeout_s=120))
        await asyncio.to_thread(stop_first.set)
        await asyncio.to_thread(stopped.wait, 60)
        writing = asyncio.ensure_future(client.update_attempt(taken.rollout_id, taken.attempt.attempt_id, "succeeded"))
        reading = asyncio.ensure_future(client.get_rollout_by_id(taken.rollout_id))
        enqueueing = asyncio.ensure_future(client.enqueue_rollout(2))
        done, _ = await asyncio.wait({waiting, resources, dequeueing, writing, reading, enqueueing}, timeout=0.2)
        assert done == set(), "nobody is there"
        go_on.set()
        assert (await writing).status == "succeeded"
        ((over,), read, second, handed_out) = await asyncio.gather(waiting, reading, enqueueing, dequeueing)
        assert over.status == "succeeded"
        assert read is not None
        assert isinstance(handed_out, AttemptedRollout)
        assert handed_out.rollout_id == second.rollout_id
        await client.add_resources({})
        return [await resources]

    stop_first, stopped, go_on = threading.Event(), threading.Event(), threading.Event()
    client = LightningStoreClient(settings=settings)  # finds the server anew: its port may change
    with ThreadPoolExecutor(1) as threads:
        with served(behind, settings):
            result = threads.submit(asyncio.run, scenario(client))
            assert stop_first.wait(300)
        stopped.set()
        assert go_on.wait(300)
        with served(behind, settings):
            (resources,) = result.result(300)
            assert resources is not None
    asyncio.run(client.close())
    assert sum(event.kind.value == "enqueued" for event in behind.history()) == 2
    asyncio.run(behind.close())


SPAN = Span.from_attributes(attributes={}, rollout_id="r0", attempt_id="a0", sequence_id=3, name="work")

WRITES: dict[str, tuple[str, Any]] = {
    "enqueue": ("/queues/rollouts/enqueue", {"rollouts": [{"input": 1}, {"input": 1}]}),
    "start_rollout": ("/rollouts", {"input": 1}),
    "start_rollout by name": ("/rollouts", {"input": 1, "rollout_id": "r1"}),
    "start_attempt": ("/rollouts/r0/attempts", {"worker_id": "w"}),
    "add_resources": ("/resources", {"main": {"resource_type": "prompt_template", "template": "x"}}),
    "add_span": ("/spans", SPAN.model_dump()),
    "update_attempt": ("/rollouts/r0/attempts/latest", {"status": "succeeded"}),
    "update_rollout": ("/rollouts/r0", {"status": "failed"}),
    "update_resources": ("/resources/rs0", {"main": {"resource_type": "prompt_template", "template": "x"}}),
    "requeue": ("/rollouts/r0", {"status": "requeuing"}),
    "cancel_rollout": ("/rollouts/r0/cancel", {}),
}


@pytest.mark.parametrize("name", WRITES)
def test_a_write_is_done_once_though_its_server_died_before_it_answered(
    tmp_path: Path, behind: InMemoryLightningStore, name: str
) -> None:
    """The second server has no memory of the first one's answers, only the store that both serve."""
    begun = asyncio.run(behind.start_rollout(0, rollout_id="r0"))
    path, body = WRITES[name]
    if name == "add_span":
        body = body | {"attempt_id": begun.attempt.attempt_id}

    def ask(server: LightningStoreServer, key: str) -> httpx.Response:
        return httpx.post(f"{server.endpoint}/v1/agl{path}", json=body, headers={"idempotency-key": key}, timeout=60)

    with served(behind, local_settings(tmp_path)) as server:
        first = ask(server, "k")
        assert first.is_success, first.text
    kept = everything(behind)
    with served(behind, local_settings(tmp_path)) as server:
        again = ask(server, "k")
        assert again.status_code == first.status_code, again.text
        if name == "add_span":
            assert again.json() is None, "it is there already"
            assert asyncio.run(behind.query_spans("r0")).total == 1
            return
        assert again.json() == first.json()
        assert everything(behind) == kept
        other = ask(server, "other")
    if name in ("enqueue", "start_rollout", "start_attempt", "add_resources"):
        assert other.is_success
        assert everything(behind) != kept, "another key is another write"
    if name == "start_rollout by name":
        assert other.status_code == 400
        assert "Rollout r1 exists already" in other.json()["detail"]


def test_a_rollout_is_queued_again_once_though_another_attempt_began_in_between(
    tmp_path: Path, behind: InMemoryLightningStore
) -> None:
    asyncio.run(behind.start_rollout(0, rollout_id="r0"))

    def ask(server: LightningStoreServer) -> httpx.Response:
        url = f"{server.endpoint}/v1/agl/rollouts/r0"
        return httpx.post(url, json={"status": "requeuing"}, headers={"idempotency-key": "k"}, timeout=60)

    with served(behind, local_settings(tmp_path)) as server:
        assert ask(server).json()["status"] == "requeuing"
    second = asyncio.run(behind.dequeue_rollout("w"))
    assert second is not None
    with served(behind, local_settings(tmp_path)) as server:
        assert ask(server).json()["status"] == "preparing"
    assert asyncio.run(behind.get_latest_attempt("r0")) == second.attempt


def everything(store: InMemoryLightningStore) -> list[Any]:
    async def look() -> list[Any]:
        rollouts = list(await store.query_rollouts())
        found: list[Any] = [*rollouts, *await store.query_resources()]
        for rollout in rollouts:
            found += [*await store.query_attempts(rollout.rollout_id), *await store.query_spans(rollout.rollout_id)]
        return found

    return asyncio.run(look())


def test_patience_ends_with_what_to_do(tmp_path: Path) -> None:
    client = LightningStoreClient("http://127.0.0.1:9", settings=local_settings(tmp_path), patience_s=0.2)
    with pytest.raises(ServiceUnavailableError, match="lightstream store"):
        asyncio.run(client.start())
    unnamed = LightningStoreClient(settings=local_settings(tmp_path), patience_s=0.2)
    with pytest.raises(ServiceUnavailableError, match="no store runs"):
        asyncio.run(unnamed.start())
    asyncio.run(client.close())
    asyncio.run(unnamed.close())


def test_a_waiter_is_woken_at_once_though_the_server_waits_in_slices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lightstream.store_views.stores.http import client as client_module

    monkeypatch.setattr("lightstream.store_views.stores.http._routes.WAIT_S_MAX", 0.3)
    monkeypatch.setattr(client_module, "WAIT_S_MAX", 0.3)
    behind = InMemoryLightningStore()
    settings = local_settings(tmp_path)
    client = LightningStoreClient(settings=settings)

    async def wait() -> Sequence[Rollout]:
        return await client.wait_for_rollouts(rollout_ids=["r1", "r2"], count=2)

    async def take() -> AttemptedRollout | None:
        return await client.dequeue_rollout("w", timeout_s=60)

    with served(behind, settings), ThreadPoolExecutor(2) as threads:
        for name in ("r1", "r2"):
            asyncio.run(behind.start_rollout(name, rollout_id=name))
        waiting, taking = threads.submit(asyncio.run, wait()), threads.submit(asyncio.run, take())
        assert asyncio.run(client.wait_for_rollouts(rollout_ids=["r1"], timeout=1.0)) == [], "several slices"
        asyncio.run(behind.update_rollout("r1", status="succeeded"))
        asyncio.run(behind.enqueue_rollout(3, rollout_id="r3"))
        taken = taking.result(300)
        assert taken is not None
        assert taken.rollout_id == "r3"
        assert [r.rollout_id for r in asyncio.run(client.wait_for_rollouts(rollout_ids=["r1", "r2"], share=0.5))] == [
            "r1"
        ]
        assert not waiting.done()
        asyncio.run(behind.update_rollout("r2", status="failed"))
        assert [r.status for r in waiting.result(300)] == ["succeeded", "failed"]
    asyncio.run(client.close())
    asyncio.run(behind.close())
