"""The wait for the verdicts on events that were written together: the event loop is woken once for all."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TypeAlias

from lightstream.schemas.errors import PublishError, ServiceUnavailableError
from lightstream.schemas.records import RolloutState

from .._loop_calls import call_in

__all__ = ["Verdicts"]

Outcome: TypeAlias = RolloutState | PublishError | None
"""The state that carries a verdict; why there will be none; or nothing, as the store was closed."""


class Verdicts:
    """Answers to some events. A verdict says that its event is durable: only failures are waited for beside it.

    Make it in the event loop that waits. No futures: one of each event took a tenth of a store's processor time.

    Args:
        count: of the events, which go by their numbers from 0.
        patience_s: how long a verdict may take once its event is durable.
    """

    def __init__(self, count: int, patience_s: float) -> None:
        self._patience_s = patience_s
        self._loop = asyncio.get_running_loop()
        self._all_there: asyncio.Future[None] = self._loop.create_future()
        self._lock = threading.Lock()
        self._outcomes: dict[int, Outcome] = {}
        self._count = count
        self._on_their_way = count
        self._durable_s = time.monotonic()
        self._next_look: asyncio.TimerHandle | None = None
        if not count:
            self._all_there.set_result(None)

    def judged(self, number: int, state: RolloutState | None) -> None:
        """The verdict on an event is there, or will not come as the store is closed. On any thread."""
        self._settle(number, state)

    def delivered(self, number: int, error: PublishError | None) -> None:
        """An event is durable, or lost. On any thread; a verdict may have come before."""
        with self._lock:
            self._on_their_way -= 1
            self._durable_s = time.monotonic()
        if error is not None:
            self._settle(number, error)

    async def all(self) -> list[RolloutState]:
        """The states that carry the verdicts, in the order of the events.

        Raises:
            PublishError: an event did not become durable.
            ServiceUnavailableError: the store was closed before a verdict came.
            TimeoutError: a verdict did not come.
        """
        if not self._all_there.done():
            self._look()
            try:
                await self._all_there
            finally:
                if self._next_look is not None:
                    self._next_look.cancel()
        states: list[RolloutState] = []
        for number in range(self._count):
            outcome = self._outcomes[number]
            if outcome is None:
                raise ServiceUnavailableError(
                    "the store was closed before the verdict came.",
                    next_step="The write may still take effect; ask another store how it came out.",
                )
            if isinstance(outcome, PublishError):
                raise outcome
            states.append(outcome)
        return states

    def _look(self) -> None:
        """Give up where it has taken too long, else look again when it may have."""
        with self._lock:
            waited_s = 0.0 if self._on_their_way > 0 else time.monotonic() - self._durable_s
        if waited_s < self._patience_s:
            self._next_look = self._loop.call_later(self._patience_s - waited_s, self._look)
        elif not self._all_there.done():
            self._all_there.set_exception(TimeoutError())

    def _settle(self, number: int, outcome: Outcome) -> None:
        """The first outcome counts."""
        with self._lock:
            if number in self._outcomes:
                return
            self._outcomes[number] = outcome
            last = len(self._outcomes) == self._count
        if last:
            call_in(self._loop, self._wake)

    def _wake(self) -> None:
        if not self._all_there.done():
            self._all_there.set_result(None)
