"""What other threads bring wakes an event loop once, and reaches whoever waits there."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future

import pytest

from lightstream.schemas.errors import ServiceUnavailableError
from lightstream.store_views.stores._loop_calls import call_in, future_in, gathered

COUNT = 5


def in_thread(work: threading.Thread) -> None:
    work.start()
    work.join()


def test_what_is_gathered_is_called_at_the_end_of_the_block() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        turn, called_in_turn = 0, list[int]()

        async def pass_a_turn() -> None:
            nonlocal turn
            turn += 1

        def bring() -> None:
            with gathered():
                for _ in range(COUNT):
                    call_in(loop, lambda: called_in_turn.append(turn))
                    asyncio.run_coroutine_threadsafe(pass_a_turn(), loop).result()

        await asyncio.to_thread(bring)
        assert called_in_turn == [COUNT] * COUNT

    asyncio.run(scenario())


async def test_futures_bring_results_and_errors_and_say_that_the_store_was_closed() -> None:
    loop = asyncio.get_running_loop()
    good: Future[int] = Future()
    bad: Future[int] = Future()
    gone: Future[int] = Future()
    left: Future[int] = Future()
    ours = [future_in(loop, future) for future in (good, bad, gone, left)]
    ours[3].cancel()

    def bring() -> None:
        with gathered():
            good.set_result(1)
            bad.set_exception(ValueError("no"))
            gone.cancel()
            left.set_result(4)

    in_thread(threading.Thread(target=bring))
    assert await ours[0] == 1
    with pytest.raises(ValueError, match="no"):
        await ours[1]
    with pytest.raises(ServiceUnavailableError, match="closed"):
        await ours[2]
    assert left.result() == 4, "whoever stops waiting takes nothing from others"


def test_a_loop_that_is_closed_is_passed_over() -> None:
    loop = asyncio.new_event_loop()
    loop.close()
    call_in(loop, lambda: pytest.fail("called in a closed loop"))
    with gathered():
        call_in(loop, lambda: pytest.fail("called in a closed loop"))
