"""Facts are written, and their verdicts waited for: few facts at once, and of many a few hundred at a time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import TypeAlias

from lightstream.schemas.errors import ServiceUnavailableError
from lightstream.schemas.records import RolloutEvent, RolloutState

from .follower import Follower
from .turns import Turns
from .verdicts import Verdicts

__all__ = ["Judge"]

EncodedFact: TypeAlias = tuple[RolloutEvent, bytes]
"""A fact and how it is written."""

SLICE_FACTS = 64
SLICES_AT_ONCE = 4
"""Of many facts that one call writes, so many have no verdict yet: a training step goes out in one turn, and thousands
of tasks do not hold up whoever asks for work meanwhile, whose request comes after them in the log."""


class Judge:
    """Has the life cycle judge facts.

    Args:
        turns: where they are written.
        follower: reads what they are answered with.
        patience_s: how long a verdict may take once its fact is durable.
    """

    def __init__(self, turns: Turns, follower: Follower, patience_s: float) -> None:
        self._turns = turns
        self._follower = follower
        self._patience_s = patience_s

    async def all(self, facts: Sequence[EncodedFact]) -> list[RolloutState]:
        """Write facts and return the states that carry their verdicts, in the order of the facts.

        Raises:
            ServiceUnavailableError: no verdict in time, or before the store was closed; what was written is durable and
                will be judged later.
            PublishError: one of them did not become durable; those after it may not have been written.
        """
        if len(facts) <= SLICE_FACTS:
            return await self._slice(facts)
        states: list[RolloutState] = []
        asked: deque[asyncio.Task[list[RolloutState]]] = deque()
        try:
            for start in range(0, len(facts), SLICE_FACTS):
                if len(asked) == SLICES_AT_ONCE:
                    states += await asked.popleft()
                asked.append(asyncio.create_task(self._slice(facts[start : start + SLICE_FACTS])))
            while asked:
                states += await asked.popleft()
        finally:
            for task in asked:
                task.cancel()
            await asyncio.gather(*asked, return_exceptions=True)
        return states

    async def _slice(self, facts: Sequence[EncodedFact]) -> list[RolloutState]:
        """As :meth:`all`, at once."""
        verdicts = Verdicts(len(facts), self._patience_s)
        tells = [partial(verdicts.judged, number) for number in range(len(facts))]
        for (fact, _), tell in zip(facts, tells, strict=True):
            self._follower.expect_verdict(fact.rollout_id, fact.event_id, tell)
        try:
            for number, (fact, value) in enumerate(facts):
                self._turns.write(fact.rollout_id, value, partial(verdicts.delivered, number))
            return await verdicts.all()
        except TimeoutError as error:
            raise ServiceUnavailableError(
                f"no verdict on {facts[0][0].event_id} within {self._patience_s} s.",
                next_step="Is the worker running? `lightstream status` shows it; `lightstream worker` starts it.",
            ) from error
        finally:
            for (fact, _), tell in zip(facts, tells, strict=True):
                self._follower.forget_verdict(fact.rollout_id, fact.event_id, tell)
