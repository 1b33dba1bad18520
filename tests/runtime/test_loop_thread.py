"""An event loop in a thread: calls from anywhere, and what becomes of them when their caller or the loop goes."""

from __future__ import annotations

import asyncio
import threading

import pytest

from lightstream.runtime.loop_thread import LoopThread
from lightstream.schemas.errors import ServiceUnavailableError

WAIT_S = 60.0


async def nothing() -> None:
    return None


async def thread_name() -> str:
    return threading.current_thread().name


async def test_calls_from_any_loop_and_thread_run_in_its_thread() -> None:
    loop = LoopThread("its-thread", "it")
    assert await loop.call(thread_name) == "its-thread"
    assert await asyncio.to_thread(loop.run, thread_name) == "its-thread"
    assert await asyncio.to_thread(asyncio.run, loop.call(thread_name)) == "its-thread"

    async def inner() -> str:
        return await loop.call(thread_name)

    assert await loop.call(inner) == "its-thread", "a call from within runs at once"
    await asyncio.to_thread(loop.close, nothing)


async def test_errors_and_cancellation_pass_through() -> None:
    loop = LoopThread("its-thread", "it")
    begun, ended = threading.Event(), threading.Event()

    async def fail() -> None:
        raise ValueError("no")

    async def wait() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    with pytest.raises(ValueError, match="no"):
        await loop.call(fail)
    waiting = asyncio.create_task(loop.call(wait))
    await asyncio.to_thread(begun.wait, WAIT_S)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert await asyncio.to_thread(ended.wait, WAIT_S)
    await asyncio.to_thread(loop.close, nothing)


@pytest.mark.parametrize("is_done_first", [True, False])
async def test_a_result_that_its_caller_does_not_take_is_handed_over(is_done_first: bool) -> None:
    loop = LoopThread("its-thread", "it")
    begun, may_go_on, handed_over = threading.Event(), threading.Event(), threading.Event()
    unclaimed: list[int] = []

    async def work() -> int:
        begun.set()
        while not may_go_on.is_set():
            try:
                await asyncio.sleep(0.001)
            except asyncio.CancelledError:
                break  # it was too far to turn back
        return 7

    async def take(result: int) -> None:
        unclaimed.append(result)
        handed_over.set()

    calling = asyncio.create_task(loop.call(work, unclaimed=take))
    await asyncio.sleep(0)
    assert begun.wait(WAIT_S)
    if is_done_first:
        may_go_on.set()
        loop.run(lambda: asyncio.sleep(0.01))  # the caller's loop is held meanwhile
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    assert await asyncio.to_thread(handed_over.wait, WAIT_S)
    assert unclaimed == [7]
    await asyncio.to_thread(loop.close, nothing)


async def test_closing_lets_calls_end_and_cancels_those_that_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lightstream.runtime.loop_thread.FINISH_TIMEOUT_S", 0.2)
    loop = LoopThread("its-thread", "the store")
    begun = threading.Semaphore(0)

    async def make_event() -> asyncio.Event:
        return asyncio.Event()

    told = await loop.call(make_event)

    async def until_told() -> str:
        begun.release()
        await told.wait()
        return "told"

    async def for_ever() -> None:
        begun.release()
        await asyncio.Event().wait()

    async def finish() -> None:
        told.set()

    first, second = asyncio.create_task(loop.call(until_told)), asyncio.create_task(loop.call(for_ever))
    for _ in range(2):
        await asyncio.to_thread(begun.acquire)
    await asyncio.to_thread(loop.close, finish)
    assert await first == "told"
    with pytest.raises(ServiceUnavailableError, match="the store was closed"):
        await second
    with pytest.raises(ServiceUnavailableError, match="the store was closed"):
        await loop.call(nothing)
    await asyncio.to_thread(loop.close, finish)  # nothing happens


async def test_each_of_many_posts_of_many_threads_is_called_once() -> None:
    loop = LoopThread("its-thread", "it")
    await loop.call(nothing)
    called: list[int] = []

    def post_all(first: int) -> None:
        for number in range(first, first + 1000):
            loop.post(lambda number=number: called.append(number))  # type: ignore[misc]  # bound per call

    await asyncio.gather(*(asyncio.to_thread(post_all, first) for first in (0, 1000, 2000)))
    async with asyncio.timeout(WAIT_S):
        while len(called) < 3000:
            await loop.call(nothing)
    assert sorted(called) == list(range(3000))
    await asyncio.to_thread(loop.close, nothing)
    loop.post(lambda: pytest.fail("called in a loop that has ended"))
