"""One caller at a time for each name, from whichever threads and loops, also where some give up waiting."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from lightstream.store_views.stores.kafka.keyed_lock import KeyedLock

THREADS, TIMES = 4, 50


def test_threads_with_loops_of_their_own() -> None:
    keyed_lock, inside, passed = KeyedLock(), list[int](), list[int]()

    async def pass_often(thread: int) -> None:
        for _ in range(TIMES):
            async with keyed_lock.alone("name"):
                inside.append(thread)
                await asyncio.sleep(0)
                assert inside == [thread]
                inside.clear()
                passed.append(thread)

    with ThreadPoolExecutor(THREADS) as pool:
        for done in [pool.submit(asyncio.run, pass_often(thread)) for thread in range(THREADS)]:
            done.result(60)
    assert len(passed) == THREADS * TIMES


async def _alone(keyed_lock: KeyedLock, name: str, let_in: asyncio.Event, passed: list[str], what: str) -> None:
    async with keyed_lock.alone(name):
        passed.append(what)
        await let_in.wait()


async def test_who_gives_up_lets_nobody_in_early() -> None:
    keyed_lock, passed = KeyedLock(), list[str]()
    go_on, at_once = asyncio.Event(), asyncio.Event()
    at_once.set()
    first = asyncio.create_task(_alone(keyed_lock, "a", go_on, passed, "first"))
    second = asyncio.create_task(_alone(keyed_lock, "a", at_once, passed, "second"))
    third = asyncio.create_task(_alone(keyed_lock, "a", at_once, passed, "third"))
    await asyncio.sleep(0)  # all three have asked
    await _alone(keyed_lock, "b", at_once, passed, "another name")
    second.cancel()
    await asyncio.wait([second])
    assert second.cancelled()
    await asyncio.sleep(0)
    assert passed == ["first", "another name"]
    go_on.set()
    await asyncio.gather(first, third)
    assert passed == ["first", "another name", "third"]
