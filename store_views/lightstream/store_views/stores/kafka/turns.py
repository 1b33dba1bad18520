"""Facts of all callers that act in one turn of an event loop, handed over in a row: they share requests, unwaited."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import NamedTuple

from lightstream.schemas.errors import BackpressureError, PublishError
from lightstream.schemas.kafka import Delivered, KafkaPublisher
from lightstream.schemas.topics import ROLLOUT_EVENTS

__all__ = ["BUFFER_PAUSE_S", "FactTurns"]

BUFFER_PAUSE_S = 0.01
"""Between looks whether a full send buffer has room."""


class _Fact(NamedTuple):
    key: str
    value: bytes
    delivered: Delivered


class FactTurns:
    """Writes to ``rollout-events``. One for all event loops of a store.

    Args:
        patience_s: how long a full send buffer may have no room before a fact counts as lost.
    """

    def __init__(self, publisher: KafkaPublisher, patience_s: float) -> None:
        self._publisher = publisher
        self._patience_s = patience_s
        self._ready: dict[asyncio.AbstractEventLoop, list[_Fact]] = {}

    def add(self, key: str, value: bytes, delivered: Delivered) -> None:
        """Write an encoded fact at the end of this turn of the running loop.

        Args:
            value: of a size that was checked.
            delivered: told whether it is durable; on any thread.
        """
        loop = asyncio.get_running_loop()
        ready = self._ready.get(loop)
        if ready is None:
            ready = self._ready[loop] = []
            loop.call_soon(self._end_turn, loop)
        ready.append(_Fact(key, value, delivered))

    def _end_turn(self, loop: asyncio.AbstractEventLoop) -> None:
        self._hand_over(loop, self._ready.pop(loop), time.monotonic() + self._patience_s)

    def _hand_over(self, loop: asyncio.AbstractEventLoop, facts: Sequence[_Fact], until_s: float) -> None:
        for number, fact in enumerate(facts):
            try:
                self._publisher.send_encoded(ROLLOUT_EVENTS, fact.key, fact.value, fact.delivered)
            except BackpressureError as error:
                if time.monotonic() <= until_s:
                    loop.call_later(BUFFER_PAUSE_S, self._hand_over, loop, facts[number:], until_s)
                    return
                fact.delivered(error)
            except PublishError as error:
                fact.delivered(error)
