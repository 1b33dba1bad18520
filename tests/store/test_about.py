"""``capabilities``, ``statistics``; use from several threads; the interface itself."""

from __future__ import annotations

import asyncio
import inspect
import pickle
import threading

from lightstream.schemas.interfaces import LightningStore
from lightstream.schemas.types import UNSET, Unset

from .support import begun, span_of, unique

METHODS = [name for name, _ in inspect.getmembers(LightningStore, inspect.isfunction) if not name.startswith("_")]


def test_every_method_is_there_with_the_interfaces_arguments(store: LightningStore) -> None:
    assert {"dequeue_rollout", "otlp_traces_endpoint", "positions", "see"} <= set(METHODS)
    for name in METHODS:
        of_interface = inspect.signature(getattr(LightningStore, name)).parameters.values()
        of_store = inspect.signature(getattr(type(store), name)).parameters.values()
        assert [(p.name, p.kind, p.default) for p in of_store] == [(p.name, p.kind, p.default) for p in of_interface]


async def test_statistics_count(store: LightningStore) -> None:
    before = await store.statistics()
    made = await begun(store, worker_id=unique("w"))
    await store.start_attempt(made.rollout_id)
    await store.add_many_spans([span_of(made, sequence_id=number) for number in (1, 2, 3)])
    await store.add_resources({})
    after = await store.statistics()
    assert after.get("name", "").endswith("LightningStore"), "over HTTP, that of the store which is served"
    assert after.get("total_rollouts", 0) - before.get("total_rollouts", 0) == 1
    assert after.get("total_attempts", 0) - before.get("total_attempts", 0) == 2
    assert after.get("total_spans", 0) - before.get("total_spans", 0) == 3
    assert after.get("total_resources", 0) - before.get("total_resources", 0) == 1
    assert after.get("total_workers", 0) - before.get("total_workers", 0) == 1
    assert after.get("uptime", -1) >= before.get("uptime", 0) >= 0


def test_capabilities_say_that_threads_may_share_it(store: LightningStore) -> None:
    assert store.capabilities.get("thread_safe")
    assert store.capabilities.get("async_safe")


def test_threads_with_loops_of_their_own_share_a_store(store: LightningStore) -> None:
    done: list[str] = []

    async def work(number: int) -> None:
        for _ in range(3):
            await store.enqueue_rollout(number)
            rollout = await store.dequeue_rollout(f"w{number}", timeout_s=60)
            assert rollout is not None
            await store.add_span(span_of(rollout))
            await store.update_attempt(rollout.rollout_id, "latest", status="succeeded")
            done.append(rollout.rollout_id)

    threads = [threading.Thread(target=lambda n=n: asyncio.run(work(n))) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(done)) == len(done) == 12


def test_unset_is_one_object() -> None:
    assert pickle.loads(pickle.dumps(UNSET)) is UNSET  # noqa: S301  # our own
    assert repr(UNSET) == "UNSET"
    assert isinstance(UNSET, Unset)
