"""Events of one turn of an event loop, on a real broker."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from lightstream.runtime.kafka import KafkaPublisher, create_topics
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import BackpressureError, PublishError
from lightstream.store_views.stores.kafka.turns import Turns

WAIT_S = 30.0


@pytest.fixture
def publisher(settings: Settings) -> Iterator[KafkaPublisher]:
    create_topics(settings)
    with closing(KafkaPublisher(settings, linger_ms=0.0)) as publisher:
        yield publisher


def test_each_event_of_many_turns_is_told_of_once(publisher: KafkaPublisher) -> None:
    told: list[tuple[int, PublishError | None]] = []

    async def write_all() -> None:
        turns, loop, all_told = Turns(publisher, WAIT_S), asyncio.get_running_loop(), asyncio.Event()

        def tell(number: int, error: PublishError | None) -> None:
            told.append((number, error))
            if len(told) == 300:
                loop.call_soon_threadsafe(all_told.set)

        async def writer(first: int) -> None:
            for number in range(first, first + 100):
                turns.write(f"key {number % 5}", b"event", lambda error, number=number: tell(number, error))  # type: ignore[misc]  # bound per event
                await asyncio.sleep(0)

        async with asyncio.timeout(WAIT_S):
            await asyncio.gather(writer(0), writer(100), writer(200))
            await all_told.wait()

    asyncio.run(write_all())
    assert sorted(told, key=lambda each: each[0]) == [(number, None) for number in range(300)]


def test_what_is_asked_for_often_in_one_turn_is_called_once(publisher: KafkaPublisher) -> None:
    calls: list[str] = []

    async def ask() -> None:
        turns, called = Turns(publisher, WAIT_S), asyncio.Event()

        def call() -> None:
            calls.append("asked")
            called.set()

        async with asyncio.timeout(WAIT_S):
            for _ in range(2):
                called.clear()
                for _ in range(3):
                    turns.at_end(call)
                await called.wait()

    asyncio.run(ask())
    assert calls == ["asked", "asked"]


def test_a_buffer_that_stays_full_is_told_as_a_loss(tmp_path: Path) -> None:
    nowhere = Settings.load(
        kafka_bootstrap_servers="127.0.0.1:9", data_dir=tmp_path, publish_timeout_s=30.0, send_buffer_bytes_max=2**20
    )

    async def lose() -> PublishError | None:
        turns, told = Turns(lossy, 0.0), asyncio.get_running_loop().create_future()
        for number in range(8):
            turns.write("key", bytes(2**18), told.set_result if number == 7 else lambda _: None)
        async with asyncio.timeout(WAIT_S):
            lost: PublishError | None = await told
            return lost

    lossy = KafkaPublisher(nowhere)
    try:
        assert isinstance(asyncio.run(lose()), BackpressureError)
    finally:
        lossy.close(0.0)


def test_events_are_told_of_as_lost_where_no_cluster_is_known(tmp_path: Path) -> None:
    told: list[PublishError | None] = []

    async def write() -> None:
        nowhere = Settings.load(kafka_bootstrap_servers=None, data_dir=tmp_path)
        turns, loop, done = Turns(KafkaPublisher(nowhere), WAIT_S), asyncio.get_running_loop(), asyncio.Event()

        def tell(error: PublishError | None) -> None:
            told.append(error)
            loop.call_soon(done.set)

        async with asyncio.timeout(WAIT_S):
            for _ in range(2):  # the second does not wait for the first
                done.clear()
                turns.write("key", b"event", tell)
                await done.wait()

    asyncio.run(write())
    assert len(told) == 2
    assert all(error is not None and error.next_step for error in told)
