"""``LightningStoreServer`` as an object: where it is, and how it begins and ends."""

from __future__ import annotations

import asyncio
import multiprocessing
import pickle
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from lightstream.agl import AgentLightningServer
from lightstream.schemas.errors import ServiceUnavailableError, StoreError
from lightstream.schemas.types import AttemptedRollout, LightningStoreCapabilities, Rollout
from lightstream.store_views.stores import InMemoryLightningStore
from lightstream.store_views.stores.forwarding import ForwardingStore
from lightstream.store_views.stores.http import LightningStoreClient, LightningStoreServer

from .support import local_settings, served

WAIT_S = 60.0


class OfTheInterfaceAlone(ForwardingStore):
    """A store whose methods take what Agent Lightning's take, and nothing beside."""

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    async def dequeue_many_rollouts(self, *, limit: int = 1, worker_id: str | None = None) -> list[AttemptedRollout]:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]  # the point
        return list(await self.store.dequeue_many_rollouts(limit=limit, worker_id=worker_id))

    async def start_rollout(  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]  # the point
        self,
        input: Any,  # noqa: A002  # the interface's name
        mode: Any = None,
        resources_id: str | None = None,
        config: Any = None,
        metadata: Any = None,
        worker_id: str | None = None,
    ) -> AttemptedRollout:
        return await self.store.start_rollout(input, mode, resources_id, config, metadata, worker_id)

    async def wait_for_rollouts(  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]  # the point
        self,
        *,
        rollout_ids: Sequence[str],
        timeout: float | None = None,  # noqa: ASYNC109  # the interface's name
    ) -> list[Rollout]:
        return await self.store.wait_for_rollouts(rollout_ids=rollout_ids, timeout=timeout)


def test_a_store_of_the_interface_alone_can_be_served(tmp_path: Path) -> None:
    async def use(client: LightningStoreClient) -> tuple[str, list[str]]:
        started = await client.start_rollout(1, worker_id="w")
        await client.enqueue_rollout(2)
        (taken,) = await client.dequeue_many_rollouts(limit=1)
        await client.update_attempt(taken.rollout_id, "latest", status="succeeded")
        over = await client.wait_for_rollouts(rollout_ids=[taken.rollout_id, started.rollout_id], timeout=0.01)
        await client.close()
        return taken.rollout_id, [rollout.rollout_id for rollout in over]

    settings = local_settings(tmp_path)
    with served(OfTheInterfaceAlone(InMemoryLightningStore()), settings) as server:
        taken, over = asyncio.run(use(LightningStoreClient(server.endpoint, settings=settings)))
    assert over == [taken]


def _enqueue(server: LightningStoreServer, rollout_id: str) -> None:
    asyncio.run(server.enqueue_rollout(1, rollout_id=rollout_id))


def test_in_another_process_it_is_a_client(tmp_path: Path) -> None:
    with served(InMemoryLightningStore(), local_settings(tmp_path)) as server:
        _enqueue(server, "here")
        for context in (multiprocessing.get_context("spawn"), multiprocessing.get_context("fork")):
            method = context.get_start_method() or ""
            process = context.Process(target=_enqueue, args=(server, method))
            process.start()
            process.join(WAIT_S)
            assert process.exitcode == 0
        page = asyncio.run(server.query_rollouts(sort_by="start_time"))
    assert [rollout.rollout_id for rollout in page] == ["here", "spawn", "fork"]


def test_a_copy_is_a_client_that_neither_starts_nor_stops_the_server(tmp_path: Path) -> None:
    with served(InMemoryLightningStore(), local_settings(tmp_path)) as server:
        copy: LightningStoreServer = pickle.loads(pickle.dumps(server))  # noqa: S301  # our own

        async def use() -> None:
            await copy.start()
            await copy.enqueue_rollout(1, rollout_id="r")
            await copy.stop()

        asyncio.run(use())
        assert copy.endpoint == server.endpoint
        assert asyncio.run(server.get_rollout_by_id("r")) is not None


def test_what_is_served_is_shared_by_all_processes(tmp_path: Path) -> None:
    store = InMemoryLightningStore()
    with served(store, local_settings(tmp_path)) as server:
        assert not store.capabilities.get("zero_copy")
        assert all(server.capabilities.get(name) for name in ("zero_copy", "thread_safe", "async_safe"))


async def test_a_stopped_server_starts_again_at_the_same_address(tmp_path: Path) -> None:
    server = LightningStoreServer(InMemoryLightningStore(), port=0, settings=local_settings(tmp_path))
    health = f"{server.endpoint}/v1/agl/health"
    for _ in range(2):
        await server.start()
        await server.start()  # nothing
        async with httpx.AsyncClient() as client:
            assert (await client.get(health, timeout=WAIT_S)).status_code == 200
            await server.stop()
            with pytest.raises(httpx.TransportError):
                await client.get(health, timeout=WAIT_S)


async def test_a_server_whose_port_was_taken_since_it_stopped(tmp_path: Path) -> None:
    settings = local_settings(tmp_path)
    server = LightningStoreServer(InMemoryLightningStore(), port=0, settings=settings)
    await server.stop()  # never started: lets go of its port
    port = int(server.endpoint.rpartition(":")[2])
    other = LightningStoreServer(InMemoryLightningStore(), port=port, settings=settings)
    with pytest.raises(ServiceUnavailableError, match=str(port)):
        await server.start()
    await other.stop()
    await server.start()
    await server.stop()


async def test_run_forever_ends_with_a_stop_and_by_being_cancelled(tmp_path: Path) -> None:
    server = LightningStoreServer(InMemoryLightningStore(), port=0, settings=local_settings(tmp_path))
    client = LightningStoreClient(server.endpoint, settings=local_settings(tmp_path))
    for end in ("stop", "cancel"):
        running = asyncio.create_task(server.run_forever())
        await client.start()  # once it answers
        if end == "stop":
            await server.stop()
            await running
        else:
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
        async with httpx.AsyncClient() as plain:
            with pytest.raises(httpx.TransportError):
                await plain.get(server.endpoint, timeout=WAIT_S)
    await client.close()


@pytest.mark.parametrize("kind", [LightningStoreServer, AgentLightningServer])
def test_run_forever_ends_with_a_stop_from_another_loop(tmp_path: Path, kind: Any) -> None:
    settings = local_settings(tmp_path)
    server = kind(store=InMemoryLightningStore(), port=0, settings=settings)
    running = threading.Thread(target=asyncio.run, args=(server.run_forever(),), daemon=True)
    running.start()

    async def once_it_answers() -> None:
        client = LightningStoreClient(server.endpoint, settings=settings)
        await client.start()
        await client.close()

    asyncio.run(once_it_answers())
    asyncio.run(server.stop())
    running.join(WAIT_S)
    assert not running.is_alive()


def test_run_forever_of_a_copy_ends_with_its_own_stop(tmp_path: Path) -> None:
    with served(InMemoryLightningStore(), local_settings(tmp_path)) as server:
        copy: LightningStoreServer = pickle.loads(pickle.dumps(server))  # noqa: S301  # our own

        async def lives() -> None:
            for _ in range(2):
                running = asyncio.create_task(copy.run_forever())
                await copy.query_rollouts()
                assert not running.done()
                await copy.stop()
                await running

        asyncio.run(lives())
        assert asyncio.run(server.query_rollouts()).total == 0


class OfOneThread(ForwardingStore):
    """Safe for several tasks, not for several threads; notes in which it was used."""

    def __init__(self) -> None:
        super().__init__(InMemoryLightningStore())
        self.used_in: list[int] = []

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    @property
    def capabilities(self) -> LightningStoreCapabilities:
        return LightningStoreCapabilities(async_safe=True)

    async def start_rollout(self, *arguments: Any, **named: Any) -> AttemptedRollout:
        self.used_in.append(threading.get_ident())
        return await self.store.start_rollout(*arguments, **named)


def test_a_store_of_one_thread_is_used_by_the_servers_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store, settings = OfOneThread(), local_settings(tmp_path)

    async def use() -> None:
        server = LightningStoreServer(store, port=0, settings=settings)
        await server.start_rollout(0)
        await server.start()
        client = LightningStoreClient(server.endpoint, settings=settings)
        await client.start_rollout(1)
        await server.start_rollout(2)
        assert server.capabilities.get("thread_safe")
        await client.close()
        await server.stop()
        await server.start_rollout(3)

    asyncio.run(use())
    assert "OfOneThread is not safe for several threads" in caplog.text
    before, of_the_client, of_the_object, after = store.used_in
    assert before == after == threading.get_ident()
    assert of_the_client == of_the_object != before


def test_a_store_of_one_task_cannot_be_served(tmp_path: Path) -> None:
    class OfOneTask(OfOneThread):
        @property
        def capabilities(self) -> LightningStoreCapabilities:
            return LightningStoreCapabilities()

    with pytest.raises(StoreError, match="OfOneTask is not safe for several tasks"):
        LightningStoreServer(OfOneTask(), port=0, settings=local_settings(tmp_path))


def test_a_server_on_every_address_tells_one_that_can_be_reached(tmp_path: Path) -> None:
    settings = local_settings(tmp_path, store_token="secret")
    server = LightningStoreServer(InMemoryLightningStore(), "0.0.0.0", 0, settings=settings)
    asyncio.run(server.start())
    try:
        assert "0.0.0.0" not in server.endpoint
        assert httpx.get(f"{server.endpoint}/v1/agl/health", timeout=WAIT_S).status_code == 200
        client = LightningStoreClient(settings=settings)  # as announced
        assert client.server_address_root == server.endpoint
        assert client.server_address == f"{server.endpoint}/v1/agl"
    finally:
        asyncio.run(server.stop())
