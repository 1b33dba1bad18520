"""The wait for the verdicts on facts that were written together: the event loop is woken once for all."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, InvalidStateError
from functools import partial

from lightstream.schemas.errors import PublishError
from lightstream.schemas.kafka import Delivered
from lightstream.schemas.records import RolloutState

from .._loop_calls import call_in

__all__ = ["Verdicts"]


class Verdicts:
    """What some facts were answered with. A verdict says that its fact is durable: only failures are waited for beside.

    Make it in the event loop that waits.

    Args:
        futures: of the verdicts; each is resolved once, on whatever thread.
        patience_s: how long a verdict may take once its fact is durable.
    """

    def __init__(self, futures: Sequence[Future[RolloutState]], patience_s: float) -> None:
        self._futures = futures
        self._patience_s = patience_s
        self._loop = asyncio.get_running_loop()
        self._all_there: asyncio.Future[None] = self._loop.create_future()
        self._lock = threading.Lock()
        self._left = len(futures)
        self._on_their_way = 0
        self._durable_s = time.monotonic()
        self._next_look: asyncio.TimerHandle | None = None
        for future in futures:
            future.add_done_callback(self._count)
        if not futures:
            self._all_there.set_result(None)

    def on_its_way(self, verdict: Future[RolloutState]) -> Delivered:
        """The fact whose verdict is ``verdict`` goes to Kafka; call the result once it is durable or lost."""
        with self._lock:
            self._on_their_way += 1
        return partial(self._delivered, verdict)

    async def all(self) -> list[RolloutState]:
        """The states that carry the verdicts.

        Raises:
            PublishError: a fact did not become durable.
            TimeoutError: a verdict did not come.
        """
        if not self._all_there.done():
            self._look()
            try:
                await self._all_there
            finally:
                if self._next_look is not None:
                    self._next_look.cancel()
        if any(future.cancelled() for future in self._futures):
            raise asyncio.CancelledError  # the store was closed meanwhile
        return [future.result() for future in self._futures]

    def _look(self) -> None:
        """Give up where it has taken too long, else look again when it may have."""
        with self._lock:
            waited_s = 0.0 if self._on_their_way else time.monotonic() - self._durable_s
        if waited_s < self._patience_s:
            self._next_look = self._loop.call_later(self._patience_s - waited_s, self._look)
        elif not self._all_there.done():
            self._all_there.set_exception(TimeoutError())

    def _delivered(self, verdict: Future[RolloutState], error: PublishError | None) -> None:
        with self._lock:
            self._on_their_way -= 1
            self._durable_s = time.monotonic()
        if error is not None:
            _fail(verdict, error)

    def _count(self, _: Future[RolloutState]) -> None:
        with self._lock:
            self._left -= 1
            last = self._left == 0
        if last:
            call_in(self._loop, self._wake)

    def _wake(self) -> None:
        if not self._all_there.done():
            self._all_there.set_result(None)


def _fail(verdict: Future[RolloutState], error: BaseException) -> None:
    if verdict.done():
        return
    try:
        if verdict.set_running_or_notify_cancel():
            verdict.set_exception(error)
    except (InvalidStateError, RuntimeError):  # resolved at this moment
        return
