"""Events are written, and their verdicts waited for: few events at once, and of many a few hundred at a time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import TypeAlias

from lightstream.schemas.errors import ServiceUnavailableError
from lightstream.schemas.records import RolloutEvent, RolloutState

from .log_tail import LogTail
from .turns import Turns
from .verdicts import Verdicts

__all__ = ["Judge"]

EncodedFact: TypeAlias = tuple[RolloutEvent, bytes]
"""An event and how it is written."""

SLICE_EVENTS = 64
SLICES_AT_ONCE = 4
"""Of many events that one call writes, so many have no verdict yet: a training step goes out in one turn, and thousands
of tasks do not hold up whoever asks for work meanwhile, whose request comes after them in the log."""


class Judge:
    """Has the life cycle judge events.

    Args:
        turns: where they are written.
        tail: reads the answers to them.
        patience_s: how long a verdict may take once its event is durable.
    """

    def __init__(self, turns: Turns, tail: LogTail, patience_s: float) -> None:
        self._turns = turns
        self._tail = tail
        self._patience_s = patience_s

    async def all(self, events: Sequence[EncodedFact]) -> list[RolloutState]:
        """Write events and return the states that carry their verdicts, in the order of the events.

        Raises:
            ServiceUnavailableError: no verdict in time, or before the store was closed; what was written is durable and
                will be judged later.
            PublishError: one of them did not become durable; those after it may not have been written.
        """
        if len(events) <= SLICE_EVENTS:
            return await self._slice(events)
        states: list[RolloutState] = []
        asked: deque[asyncio.Task[list[RolloutState]]] = deque()
        try:
            for start in range(0, len(events), SLICE_EVENTS):
                if len(asked) == SLICES_AT_ONCE:
                    states += await asked.popleft()
                asked.append(asyncio.create_task(self._slice(events[start : start + SLICE_EVENTS])))
            while asked:
                states += await asked.popleft()
        finally:
            for task in asked:
                task.cancel()
            await asyncio.gather(*asked, return_exceptions=True)
        return states

    async def _slice(self, events: Sequence[EncodedFact]) -> list[RolloutState]:
        """As :meth:`all`, at once."""
        verdicts = Verdicts(len(events), self._patience_s)
        tells = [partial(verdicts.judged, number) for number in range(len(events))]
        for (event, _), tell in zip(events, tells, strict=True):
            self._tail.expect_verdict(event.rollout_id, event.event_id, tell)
        try:
            for number, (event, value) in enumerate(events):
                self._turns.write(event.rollout_id, value, partial(verdicts.delivered, number))
            return await verdicts.all()
        except TimeoutError as error:
            raise ServiceUnavailableError(
                f"no verdict on {events[0][0].event_id} within {self._patience_s} s.",
                next_step="Is the worker running? `lightstream status` shows it; `lightstream worker` starts it.",
            ) from error
        finally:
            for (event, _), tell in zip(events, tells, strict=True):
                self._tail.forget_verdict(event.rollout_id, event.event_id, tell)
