"""Each span is written once, and nobody is told that a span is known which is not durable."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from typing import Any

import pytest

from lightstream.runtime.kafka import Position
from lightstream.schemas.errors import BackpressureError, PublishError
from lightstream.schemas.types import Span
from lightstream.store_views.stores.kafka.spans import SpanWriter

PLACE = Position("spans", 0, 7)


class Client:
    """Takes records once it has room; what it took is durable or lost when the test says so."""

    def __init__(self) -> None:
        self.has_room = asyncio.Event()
        self.has_room.set()
        self.taken: list[tuple[str, bytes, Future[Position]]] = []
        self.full: BackpressureError | None = None

    async def hand_over(self, key: str, value: bytes) -> Future[Position]:
        await self.has_room.wait()
        if self.full is not None:
            raise self.full
        sent: Future[Position] = Future()
        self.taken.append((key, value, sent))
        return sent

    @property
    def values(self) -> list[bytes]:
        return [value for _, value, _ in self.taken]


def span(number: int) -> Span:
    return Span.from_attributes(
        attributes={}, rollout_id="r", attempt_id="a", sequence_id=number, span_id=f"{number:016x}"
    )


def keep(writer: SpanWriter, *numbers: int) -> asyncio.Task[list[Span]]:
    """A call that has come as far as it can."""
    call: Coroutine[Any, Any, list[Span]] = writer.append(
        [span(number) for number in numbers], [str(number).encode() for number in numbers]
    )
    return asyncio.create_task(call)


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def soon(call: Callable[[], None]) -> None:
    asyncio.get_running_loop().call_soon(call)


def numbers_of(spans: Sequence[Span]) -> list[int]:
    return [one.sequence_id for one in spans]


async def test_a_call_tells_which_it_wrote() -> None:
    client = Client()
    writer = SpanWriter(client.hand_over, soon)
    first = keep(writer, 1, 2, 1)
    await turns()
    assert client.values == [b"1", b"2"]
    for _, _, sent in client.taken:
        assert not first.done()
        sent.set_result(PLACE)
        await turns()
    assert numbers_of(await first) == [1, 2]
    assert writer.last() == {0: 7}
    second = keep(writer, 3, 2)
    await turns()
    client.taken[-1][-1].set_result(PLACE)
    assert numbers_of(await second) == [3]
    assert numbers_of(await writer.append([], [])) == []


async def test_who_leaves_before_a_span_was_handed_over_has_not_written_it() -> None:
    client = Client()
    writer = SpanWriter(client.hand_over, soon)
    first = keep(writer, 1)
    await turns()
    client.has_room.clear()
    second = keep(writer, 2, 3)
    await turns()
    second.cancel()
    await turns()
    client.has_room.set()
    retry = keep(writer, 1, 2, 3)
    await turns()
    assert client.values == [b"1", b"2", b"3"]
    for _, _, sent in client.taken:
        sent.set_result(PLACE)
    assert numbers_of(await retry) == [2, 3]
    assert numbers_of(await first) == [1]


async def test_a_repeat_waits_until_the_first_is_durable() -> None:
    client = Client()
    writer = SpanWriter(client.hand_over, soon)
    first = keep(writer, 1)
    await turns()
    repeat = keep(writer, 1)
    await turns()
    assert not repeat.done()
    client.taken[0][-1].set_result(PLACE)
    assert numbers_of(await first) == [1]
    assert numbers_of(await repeat) == []
    assert len(client.taken) == 1


async def test_a_repeat_of_what_is_lost_is_told_so_and_the_next_one_writes_it() -> None:
    client = Client()
    writer = SpanWriter(client.hand_over, soon)
    calls = [keep(writer, 1), keep(writer, 1)]
    await turns()
    client.taken[0][-1].set_exception(PublishError("lost"))
    for call in calls:
        with pytest.raises(PublishError, match="lost"):
            await call
    assert writer.last() == {}
    retry = keep(writer, 1)
    await turns()
    client.taken[1][-1].set_result(PLACE)
    assert numbers_of(await retry) == [1]


async def test_a_repeat_writes_what_the_first_could_not_hand_over() -> None:
    client = Client()
    writer = SpanWriter(client.hand_over, soon)
    client.has_room.clear()
    first = keep(writer, 1)
    await turns()
    repeat = keep(writer, 1)
    await turns()
    client.full = BackpressureError("full")
    client.has_room.set()
    with pytest.raises(BackpressureError):
        await first
    client.full = None
    await turns()
    client.taken[0][-1].set_result(PLACE)
    assert numbers_of(await repeat) == [1]


async def test_what_was_handed_over_is_known_once_durable_though_its_writer_left() -> None:
    client = Client()
    writer = SpanWriter(client.hand_over, soon)
    first = keep(writer, 1)
    await turns()
    first.cancel()
    await turns()
    repeat = keep(writer, 1)
    await turns()
    client.taken[0][-1].set_result(PLACE)
    assert numbers_of(await repeat) == []
    assert len(client.taken) == 1
    assert writer.last() == {0: 7}
