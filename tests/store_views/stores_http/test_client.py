"""One client in many hands, and ids of every kind."""

from __future__ import annotations

import asyncio
import multiprocessing
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import TracerProvider

from lightstream.schemas.errors import NotFoundError, ServiceUnavailableError, SettingsError, StoreError
from lightstream.schemas.records import WorkerHeartbeat, WorkerStatus
from lightstream.schemas.types import LLM, RolloutConfig
from lightstream.store_views.stores import InMemoryLightningStore
from lightstream.store_views.stores.http import LightningStoreClient, LightningStoreServer

THREADS, ROLLOUTS_EACH = 8, 6


def test_one_client_from_several_threads_and_loops(
    server: LightningStoreServer, behind: InMemoryLightningStore
) -> None:
    client = LightningStoreClient(server.endpoint)
    start = threading.Barrier(THREADS)

    async def work(name: str) -> list[str]:
        await asyncio.to_thread(start.wait, 60)
        mine = await asyncio.gather(
            *(client.enqueue_rollout(n, rollout_id=f"{name}-{n}") for n in range(ROLLOUTS_EACH))
        )
        done: list[str] = []
        while len(done) < ROLLOUTS_EACH:
            taken = await client.dequeue_rollout(name, timeout_s=60)
            assert taken is not None
            await client.update_attempt(taken.rollout_id, "latest", "succeeded")
            done.append(taken.rollout_id)
        over = await client.wait_for_rollouts(rollout_ids=[rollout.rollout_id for rollout in mine], timeout=60)
        assert [rollout.status for rollout in over] == ["succeeded"] * ROLLOUTS_EACH
        return done

    with ThreadPoolExecutor(THREADS) as threads:
        taken = list(threads.map(lambda number: asyncio.run(work(f"w{number}")), range(THREADS)))
    everything = [rollout_id for of_one in taken for rollout_id in of_one]
    assert len(set(everything)) == len(everything) == THREADS * ROLLOUTS_EACH
    asyncio.run(client.close())
    assert asyncio.run(behind.query_rollouts(status_in=["succeeded"])).total == THREADS * ROLLOUTS_EACH


@pytest.mark.parametrize(
    "name",
    [
        "a/b",
        "ünïcode 猫",
        "100%",
        "a?b#c",
        "latest",
        "search",
        "next",
        "batch",
        "..",
        ".",
        "%2F",
        " ",
        "a\nb",
        "a;b&c=d+e",
    ],
)
async def test_ids_of_every_kind(server: LightningStoreServer, behind: InMemoryLightningStore, name: str) -> None:
    client = LightningStoreClient(server.endpoint)
    assert await client.get_rollout_by_id(name) is None
    assert await client.get_resources_by_id(name) is None
    assert await client.get_worker_by_id(name) is None
    for missing in (
        client.update_rollout(name, mode="val"),
        client.start_attempt(name),
        client.cancel_rollout(name),
    ):
        with pytest.raises(NotFoundError) as error:
            await missing
        assert str(error.value) == f"Rollout {name} not found"
    started = await client.start_rollout(1, rollout_id=name, worker_id=name)
    assert started.rollout_id == name
    assert await client.get_latest_attempt(name) == started.attempt
    with pytest.raises(NotFoundError):
        await client.update_attempt(name, "search", "succeeded")
    assert (await client.update_attempt(name, started.attempt.attempt_id, "failed")).status == "failed"
    stored = await client.update_resources(name, {"llm": LLM(endpoint="http://llm/v1", model="m")})
    assert await client.get_resources_by_id(name) == stored == await behind.get_resources_by_id(name)
    assert (await client.update_worker(name, {"load": 0.5})).heartbeat_stats == {"load": 0.5}
    worker = WorkerHeartbeat(worker_id=name, kind="runner", status=WorkerStatus.IDLE, heartbeat_unix_nano=10**18)
    await client.heartbeat(worker, [(name, started.attempt.attempt_id)])
    assert await client.get_worker_by_id(name) == await behind.get_worker_by_id(name)
    await client.close()


@pytest.mark.parametrize("name", ["\ud800", None, 7])
async def test_ids_that_are_none(server: LightningStoreServer, name: str) -> None:
    client = LightningStoreClient(server.endpoint)
    with pytest.raises(StoreError, match="rollout_id"):
        await client.get_rollout_by_id(name)
    await client.close()


async def test_null_is_a_value_and_what_is_not_given_stays(server: LightningStoreServer) -> None:
    client = LightningStoreClient(server.endpoint)
    made = await client.enqueue_rollout(
        {"task": 1},
        "val",
        config=RolloutConfig(max_attempts=3),
        metadata={"a": 1},
        run_id="r",
        group_id="g",
        group_size=2,
    )
    kept = await client.update_rollout(made.rollout_id, resources_id="rs")
    assert kept == made.model_copy(update={"resources_id": "rs"})
    bare = await client.update_rollout(made.rollout_id, input=None, mode=None, resources_id=None, metadata=None)
    assert (bare.input, bare.mode, bare.resources_id, bare.metadata) == (None, None, None, None)
    assert bare.config.max_attempts == 3
    await client.close()


async def test_spans_of_the_sdk(server: LightningStoreServer, behind: InMemoryLightningStore) -> None:
    client = LightningStoreClient(server.endpoint)
    with TracerProvider().get_tracer("t").start_as_current_span("work") as span:
        span.set_attribute("x", float("nan"))

    started = await client.start_rollout(1)
    ids = (started.rollout_id, started.attempt.attempt_id)
    kept = await client.add_otel_span(*ids, span)  # type: ignore[arg-type]  # the SDK's own span
    assert kept is not None
    assert kept.sequence_id == 1
    assert await client.add_otel_span(*ids, span, 2) is None  # type: ignore[arg-type]  # the SDK's own span
    (there,) = await behind.query_spans(started.rollout_id)
    assert (there.name, repr(there.attributes["x"])) == ("work", "nan")
    await client.start()
    assert client.capabilities.get("otlp_traces") is False
    with pytest.raises(NotImplementedError, match="add_otel_span"):
        client.otlp_traces_endpoint()
    await client.close()


def test_a_client_goes_to_other_processes(server: LightningStoreServer) -> None:
    client = LightningStoreClient(server.endpoint)
    asyncio.run(client.enqueue_rollout(1, rollout_id="here"))
    for context in (multiprocessing.get_context("spawn"), multiprocessing.get_context("fork")):
        process = context.Process(target=_enqueue, args=(client, context.get_start_method()))
        process.start()
        process.join(120)
        assert process.exitcode == 0
    copy: LightningStoreClient = pickle.loads(pickle.dumps(client))  # noqa: S301  # our own
    page = asyncio.run(copy.query_rollouts())
    assert [rollout.rollout_id for rollout in page] == ["here", "spawn", "fork"]
    asyncio.run(client.close())
    asyncio.run(copy.close())


async def test_a_closed_client_says_so(server: LightningStoreServer) -> None:
    client = LightningStoreClient(server.endpoint)
    await client.start()
    waiting = asyncio.ensure_future(client.dequeue_rollout(timeout_s=60))
    await client.statistics()
    await client.close()
    await client.close()
    with pytest.raises(ServiceUnavailableError, match="closed"):
        await waiting
    with pytest.raises(ServiceUnavailableError, match="closed"):
        await client.statistics()


def test_the_server_is_the_store_for_its_own_process(
    server: LightningStoreServer, behind: InMemoryLightningStore
) -> None:
    asyncio.run(server.enqueue_rollout(1, rollout_id="r"))
    assert asyncio.run(behind.get_rollout_by_id("r")) == asyncio.run(server.get_rollout_by_id("r"))
    assert server.capabilities == {**behind.capabilities, "zero_copy": True}  # other processes reach it as it is


def _enqueue(client: LightningStoreClient, rollout_id: str) -> None:
    asyncio.run(client.enqueue_rollout(1, rollout_id=rollout_id))


def test_an_address_that_is_no_store_server(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="http://"):
        LightningStoreClient("localhost:8000")
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path))
    (tmp_path / "v1/agl").mkdir(parents=True)
    (tmp_path / "v1/agl/capabilities").write_text("<html>")
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as stranger:
        threading.Thread(target=stranger.serve_forever, daemon=True).start()
        client = LightningStoreClient(f"http://127.0.0.1:{stranger.server_port}")

        async def scenario() -> None:
            with pytest.raises(ServiceUnavailableError, match="store server"):
                await client.start()
            with pytest.raises(StoreError, match="404"):
                await client.get_rollout_by_id("x")
            await client.close()

        asyncio.run(scenario())
        stranger.shutdown()
