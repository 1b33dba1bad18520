"""One event loop in a thread of its own: code that runs there needs no locks, and any thread may call it."""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import Any, TypeVar

from lightstream.schemas.errors import ServiceUnavailableError

T = TypeVar("T")

END_TIMEOUT_S = 30.0
FINISH_TIMEOUT_S = 5.0
"""Calls under way may take so long to end by themselves once what they wait for was closed."""


class LoopThread:
    """The only place where threads and event loops meet. Thread-safe.

    The thread begins with the first call; after a fork the child begins its own.

    Args:
        name: of the thread.
        what: what is closed, for the error of calls that come too late ("the store").
    """

    def __init__(self, name: str, what: str) -> None:
        self._name = name
        self._closed_message = f"{what} was closed."
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()
        self._closed = False
        self._posted: deque[Callable[[], None]] = deque()
        self._is_woken = False

    async def call(
        self,
        work: Callable[[], Coroutine[Any, Any, T]],
        *,
        unclaimed: Callable[[T], Coroutine[Any, Any, object]] | None = None,
    ) -> T:
        """The result of ``work``, run in the thread's loop; cancelling this cancels that.

        Args:
            unclaimed: is given, in the loop, a result that came when the caller had been cancelled.

        Raises:
            ServiceUnavailableError: this was closed, before or meanwhile.
        """
        loop = self._running()
        if asyncio.get_running_loop() is loop:
            return await work()
        begun: list[asyncio.Task[T]] = []

        async def begin() -> T:
            begun.append(asyncio.ensure_future(work()))
            return await begun[0]

        future = asyncio.run_coroutine_threadsafe(begin() if unclaimed else work(), loop)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if future.cancelled() and task is not None and not task.cancelling():  # by close(), not by the caller
                raise ServiceUnavailableError(self._closed_message) from error
            if unclaimed is not None:
                with suppress(ServiceUnavailableError):  # it was closed
                    self.begin(lambda: _settle(begun, unclaimed))
            raise

    def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """As :meth:`call`, for callers without a loop: blocks; interrupting this cancels that."""
        future = asyncio.run_coroutine_threadsafe(work(), self._running())
        try:
            return future.result()
        except CancelledError as error:  # nobody else cancels it
            raise ServiceUnavailableError(self._closed_message) from error
        except BaseException:
            future.cancel()
            raise

    def begin(self, work: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Have ``work`` done in the loop; nobody waits for it, or hears of its errors.

        Raises:
            ServiceUnavailableError: this was closed.
        """
        asyncio.run_coroutine_threadsafe(work(), self._running())

    def post(self, call: Callable[[], None]) -> None:
        """Call it in the loop, soon. What is posted while the loop is busy costs it one wake-up in all.

        Nothing is called any more once the loop has ended.
        """
        self._posted.append(call)
        loop = self._loop
        if self._is_woken or loop is None:
            return  # it takes all that is there once it wakes
        self._is_woken = True
        with suppress(RuntimeError):  # the loop is closed; to ask before would leave room for a close in between
            loop.call_soon_threadsafe(self._take_posted)

    def close(self, finish: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run ``finish`` in the loop, let calls under way end, and end the thread. Blocks; a second call does nothing.

        ``finish`` ends what they wait for; a call that is not over within :data:`FINISH_TIMEOUT_S` is cancelled.
        """
        with self._lock:
            loop, thread, was_closed, self._closed = self._loop, self._thread, self._closed, True
        if was_closed or loop is None or thread is None or self._pid != os.getpid():
            return
        try:
            asyncio.run_coroutine_threadsafe(_end(finish), loop).result(END_TIMEOUT_S)
        finally:
            self.abandon()
            thread.join(END_TIMEOUT_S)

    def abandon(self) -> None:
        """End the thread without a word to callers that wait; does not block."""
        with self._lock:
            self._closed = True
            loop, self._loop = self._loop, None
        if loop is not None and self._pid == os.getpid():
            loop.call_soon_threadsafe(loop.stop)

    def _take_posted(self) -> None:
        self._is_woken = False  # before the look: a later post wakes the loop again
        loop = asyncio.get_running_loop()
        while self._posted:
            loop.call_soon(self._posted.popleft())

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._closed:
                raise ServiceUnavailableError(self._closed_message)
            if self._loop is None or self._pid != os.getpid():
                self._pid = os.getpid()
                self._posted.clear()
                self._is_woken = False
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=_serve, args=(self._loop,), name=self._name, daemon=True)
                self._thread.start()
            return self._loop


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


async def _end(finish: Callable[[], Coroutine[Any, Any, None]]) -> None:
    try:
        await finish()
    finally:
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        if others:
            _, pending = await asyncio.wait(others, timeout=FINISH_TIMEOUT_S)
            for task in pending:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)


async def _settle(begun: list[asyncio.Task[T]], unclaimed: Callable[[T], Coroutine[Any, Any, object]]) -> None:
    if begun:
        await asyncio.wait(begun)
        if not begun[0].cancelled() and begun[0].exception() is None:
            await unclaimed(begun[0].result())
