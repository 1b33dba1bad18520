"""One event loop in a thread of its own, for work that any thread and any loop may ask for."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError
from typing import Any, TypeVar

from lightstream.schemas.errors import ServiceUnavailableError

from .._loop_calls import future_in

__all__ = ["LoopThread"]

T = TypeVar("T")
END_TIMEOUT_S = 10.0
CLOSED = "the store client was closed."


class LoopThread:
    """Begins with the first call; after a fork the child begins its own."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()
        self._closed = False

    async def call(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The result of ``work``, run in the thread's loop; cancelling this cancels that.

        Raises:
            ServiceUnavailableError: the thread was closed, before or meanwhile.
        """
        loop = self._running()
        future = asyncio.run_coroutine_threadsafe(work(), loop)
        try:
            return await future_in(asyncio.get_running_loop(), future)
        except asyncio.CancelledError:
            future.cancel()
            raise

    def begin(self, work: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Have ``work`` done in the thread; nobody waits for it, or hears of its errors.

        Raises:
            ServiceUnavailableError: the thread was closed.
        """
        loop = self._running()
        asyncio.run_coroutine_threadsafe(work(), loop)

    def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """As :meth:`call`, for callers without a loop: blocks; interrupting this cancels that."""
        loop = self._running()
        future = asyncio.run_coroutine_threadsafe(work(), loop)
        try:
            return future.result()
        except CancelledError as error:  # nobody else cancels it
            raise ServiceUnavailableError(CLOSED) from error
        except BaseException:
            future.cancel()
            raise

    def close(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Cancel what is under way, run ``last``, and end the thread. Blocks; a second call does nothing."""
        with self._lock:
            loop, thread, self._closed = self._loop, self._thread, True
            self._loop = None
        if loop is None or thread is None or self._pid != os.getpid():
            return
        asyncio.run_coroutine_threadsafe(_end(last), loop).result(END_TIMEOUT_S)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(END_TIMEOUT_S)

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._closed:
                raise ServiceUnavailableError(CLOSED)
            if self._loop is None or self._pid != os.getpid():
                self._pid = os.getpid()
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


async def _end(last: Callable[[], Coroutine[Any, Any, None]]) -> None:
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await last()
