"""From other threads into event loops, with one wake-up of a loop for all that a batch of records brings."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import TypeAlias, TypeVar

from lightstream.schemas.errors import ServiceUnavailableError

__all__ = ["call_in", "future_in", "gathered"]

T = TypeVar("T")
Call: TypeAlias = Callable[[], None]


class _Gathering(threading.local):
    """What the current thread has to call in which loop; ``None`` where it calls at once."""

    calls: dict[asyncio.AbstractEventLoop, list[Call]] | None = None


_gathering = _Gathering()


@contextmanager
def gathered() -> Generator[None]:
    """Within the block this thread's :func:`call_in` only takes notes; at its end each loop is woken once.

    Who is woken together acts together: what they write next shares records and requests.
    """
    calls: dict[asyncio.AbstractEventLoop, list[Call]] = {}
    _gathering.calls = calls
    try:
        yield
    finally:
        _gathering.calls = None
        for loop, gathered_calls in calls.items():
            _call(loop, gathered_calls)


def call_in(loop: asyncio.AbstractEventLoop, call: Call) -> None:
    """Call it in the loop, soon. A loop that is closed is passed over: nobody waits there any more."""
    if _gathering.calls is None:
        _call(loop, [call])
    else:
        _gathering.calls.setdefault(loop, []).append(call)


def future_in(loop: asyncio.AbstractEventLoop, future: Future[T]) -> asyncio.Future[T]:
    """A future of the loop with the result of ``future``. Cancelling it leaves ``future`` alone.

    Where ``future`` is cancelled, as a store does that is closed, it has a :class:`ServiceUnavailableError`: nobody
    cancelled the task that waits.
    """
    ours: asyncio.Future[T] = loop.create_future()

    def copy() -> None:
        if ours.done():
            return
        if future.cancelled():
            ours.set_exception(ServiceUnavailableError("the store was closed before the answer came."))
            ours.exception()  # told: if nobody waits any more, that is no error
        elif (error := future.exception()) is not None:
            ours.set_exception(error)
        else:
            ours.set_result(future.result())

    future.add_done_callback(lambda _: call_in(loop, copy))
    return ours


def _call(loop: asyncio.AbstractEventLoop, calls: Sequence[Call]) -> None:
    with suppress(RuntimeError):  # the loop is closed; to ask before would leave room for a close in between
        loop.call_soon_threadsafe(_call_all, calls)


def _call_all(calls: Sequence[Call]) -> None:
    for call in calls:
        call()
