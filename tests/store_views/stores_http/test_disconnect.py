"""Clients that stop waiting: what was, or would be, dispatched to them goes to others."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from lightstream.agl import AgentLightningClient
from lightstream.schemas.types import AttemptedRollout, Rollout
from lightstream.store_views.stores import InMemoryLightningStore
from lightstream.store_views.stores.http import LightningStoreClient, LightningStoreServer
from lightstream.store_views.stores.http._answers import Answer

from .support import local_settings, served

DEQUEUE = "/queues/rollouts/dequeue"
SHORT = httpx.Timeout(60, read=0.3)
"""A client that disconnects soon. Whether the server was asked by then, the tests find out by other means."""

WAIT_S = 60.0


class SlowStore(InMemoryLightningStore):
    """Its answer to a dequeue stays away until it is let go, and it tells that it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.was_asked = threading.Semaphore(0)
        self.may_go_on = threading.Event()

    async def dequeue_many_rollouts(
        self, *, limit: int = 1, worker_id: str | None = None, timeout_s: float = 0.0, run_id: str = "*"
    ) -> Sequence[AttemptedRollout]:
        taken = await super().dequeue_many_rollouts(
            limit=limit, worker_id=worker_id, timeout_s=timeout_s, run_id=run_id
        )
        if worker_id == "slow":
            self.was_asked.release()
            await asyncio.to_thread(self.may_go_on.wait, WAIT_S)
        return taken


def next_of(store: InMemoryLightningStore) -> str:
    """The rollout that another worker gets, now or as soon as it is requeued."""
    taken = asyncio.run(store.dequeue_rollout("another", timeout_s=WAIT_S))
    assert taken is not None
    assert taken.attempt.worker_id == "another"
    return taken.rollout_id


async def cancelled_soon(call: Coroutine[Any, Any, Any]) -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(call, 0.3)


def test_a_client_that_stops_waiting_gets_nothing_any_more(
    server: LightningStoreServer, behind: InMemoryLightningStore
) -> None:
    client = LightningStoreClient(server.endpoint)

    async def scenario() -> None:
        await cancelled_soon(client.dequeue_rollout("w1", timeout_s=WAIT_S))
        made = await client.enqueue_rollout(1)
        taken = await client.dequeue_rollout("w2", timeout_s=WAIT_S)
        assert taken is not None
        assert (taken.rollout_id, taken.attempt.worker_id) == (made.rollout_id, "w2")
        await client.close()

    asyncio.run(scenario())
    assert behind.history()[-1].worker_id == "w2"


def test_an_agent_of_the_first_protocol_that_stops_polling(
    server: LightningStoreServer, behind: InMemoryLightningStore
) -> None:
    client = AgentLightningClient(server.endpoint, poll_interval=WAIT_S)
    asyncio.run(cancelled_soon(client.poll_next_task_async()))
    made = asyncio.run(behind.enqueue_rollout(1))
    assert next_of(behind) == made.rollout_id
    client.close()


@pytest.mark.parametrize("headers", [{}, {"idempotency-key": "k"}])
def test_a_request_whose_client_disconnects_is_done_anew(
    wire: httpx.Client, behind: InMemoryLightningStore, headers: dict[str, str]
) -> None:
    asked = {"worker_id": "w", "timeout_s": WAIT_S}
    for number in range(2):
        with pytest.raises(httpx.ReadTimeout):
            wire.post(DEQUEUE, json=asked, headers=headers, timeout=SHORT)
        made = asyncio.run(behind.enqueue_rollout(number))
        (taken,) = wire.post(DEQUEUE, json=asked, headers=headers).json()
        assert taken["rollout_id"] == made.rollout_id
        if headers:
            assert wire.post(DEQUEUE, json=asked, headers=headers).json() == [taken], "it is the same request again"
            asyncio.run(behind.update_attempt(made.rollout_id, "latest", "succeeded"))
            wire.post("/queues/rollouts/give-back", json={"key": "k"})


@pytest.mark.parametrize("headers", [{}, {"idempotency-key": "k"}])
def test_what_was_taken_when_the_client_disconnected_is_requeued(tmp_path: Path, headers: dict[str, str]) -> None:
    behind = SlowStore()
    rollouts = [asyncio.run(behind.enqueue_rollout(number)) for number in range(3)]
    with served(behind, local_settings(tmp_path)) as server:
        url = f"{server.endpoint}/v1/agl{DEQUEUE}"
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(url, json={"limit": 2, "worker_id": "slow"}, headers=headers, timeout=SHORT)
        assert behind.was_asked.acquire(timeout=WAIT_S)
        behind.may_go_on.set()
        assert sorted(next_of(behind) for _ in rollouts) == sorted(rollout.rollout_id for rollout in rollouts)
    asyncio.run(behind.close())


def test_as_long_as_one_waits_for_a_request_it_is_not_ended(tmp_path: Path) -> None:
    behind = SlowStore()
    asyncio.run(behind.enqueue_rollout(1, rollout_id="r"))
    with served(behind, local_settings(tmp_path)) as server, ThreadPoolExecutor(1) as threads:
        url, asked = f"{server.endpoint}/v1/agl{DEQUEUE}", {"worker_id": "slow"}
        key = {"idempotency-key": "k"}
        patient = threads.submit(httpx.post, url, json=asked, headers=key, timeout=WAIT_S)
        assert behind.was_asked.acquire(timeout=WAIT_S)
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(url, json=asked, headers=key, timeout=SHORT)
        behind.may_go_on.set()
        (taken,) = patient.result().json()
        assert taken["rollout_id"] == "r"
    assert [event.kind.value for event in behind.history()] == ["enqueued", "attempt_started"]
    asyncio.run(behind.close())


def test_an_answer_that_was_lost_on_its_way_is_requeued(
    server: LightningStoreServer, behind: InMemoryLightningStore
) -> None:
    """The server has answered when the caller is cancelled: nobody but the client knows."""
    client = LightningStoreClient(server.endpoint)
    thread = client._connection._thread  # pyright: ignore[reportPrivateUsage]  # where the answer is lost
    call = thread.call

    async def call_and_be_cancelled(work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        await call(work)
        raise asyncio.CancelledError

    async def scenario() -> None:
        await behind.enqueue_rollout(1, rollout_id="r")
        thread.call = call_and_be_cancelled  # type: ignore[method-assign,assignment]  # the point
        with pytest.raises(asyncio.CancelledError):
            await client.dequeue_rollout("w")

    asyncio.run(scenario())
    assert next_of(behind) == "r"
    thread.call = call  # type: ignore[method-assign]  # as it was
    asyncio.run(client.close())


def test_only_what_nobody_has_begun_is_requeued(wire: httpx.Client, behind: InMemoryLightningStore) -> None:
    for name in ("begun", "over", "left"):
        asyncio.run(behind.enqueue_rollout(1, rollout_id=name))
    key = {"idempotency-key": "k"}
    assert len(wire.post(DEQUEUE, json={"limit": 3}, headers=key).json()) == 3
    asyncio.run(behind.update_attempt("begun", "latest", "running"))
    asyncio.run(behind.update_attempt("over", "latest", "succeeded"))
    for name in ("k", "unknown"):
        assert wire.post("/queues/rollouts/give-back", json={"key": name}).status_code == 200
    statuses = {rollout.rollout_id: rollout.status for rollout in asyncio.run(behind.query_rollouts())}
    assert statuses == {"begun": "running", "over": "succeeded", "left": "requeuing"}
    (again,) = wire.post(DEQUEUE, json={"limit": 3}, headers=key).json()
    assert again["rollout_id"] == "left", "the key is forgotten"
    assert wire.post("/queues/rollouts/give-back", json={"key": "k"}).status_code == 200
    (found,) = asyncio.run(behind.query_rollouts(rollout_id_in=["left"]))
    assert found.status == "requeuing", "requeued twice, it is queued twice"


def test_what_no_answer_can_carry_is_requeued(
    server: LightningStoreServer, wire: httpx.Client, behind: InMemoryLightningStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    render = Answer.render

    def fail(answer: Answer, content: Any) -> bytes:
        if isinstance(content, bytes):
            return render(answer, content)
        raise ValueError("depth exceeded")

    for number in range(2):
        asyncio.run(behind.enqueue_rollout(number, rollout_id=f"r{number}"))
    with monkeypatch.context() as broken:
        broken.setattr(Answer, "render", fail)
        said = wire.post(DEQUEUE, json={"limit": 2})
    assert said.status_code == 500
    assert "depth exceeded" in said.json()["detail"]
    assert {rollout.status for rollout in asyncio.run(behind.query_rollouts())} == {"requeuing"}


class WatchedStore(InMemoryLightningStore):
    """Tells when a wait began, and when it was ended."""

    def __init__(self) -> None:
        super().__init__()
        self.began, self.ended = threading.Event(), threading.Event()

    async def wait_for_rollouts(self, **asked: Any) -> list[Rollout]:
        self.began.set()
        try:
            return await super().wait_for_rollouts(**asked)
        finally:
            self.ended.set()


def test_a_wait_without_end_ends_with_its_client(tmp_path: Path) -> None:
    behind = WatchedStore()
    asyncio.run(behind.start_rollout(1, rollout_id="r"))
    with served(behind, local_settings(tmp_path)) as server:
        url = f"{server.endpoint}/v1/agl/waits/rollouts"
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(url, json={"rollout_ids": ["r"], "timeout": None}, timeout=SHORT)
        assert behind.began.wait(WAIT_S)
        assert behind.ended.wait(WAIT_S)
    asyncio.run(behind.close())
