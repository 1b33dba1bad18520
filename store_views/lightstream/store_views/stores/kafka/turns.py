"""What callers write in one turn of an event loop, handed over in a row: it shares requests, and none waits long."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from lightstream.runtime.kafka import Delivered, KafkaPublisher, Outgoing
from lightstream.schemas.errors import BackpressureError, LightstreamError, PublishError
from lightstream.schemas.topics import ROLLOUT_EVENTS

from .._loop_calls import call_in

__all__ = ["BUFFER_PAUSE_S", "Turns"]

BUFFER_PAUSE_S = 0.01
"""Between looks whether a full send buffer has room."""

HOLD_S_MAX = 0.005
"""How long a turn waits for the events of the turn before, at most. A round trip takes 0.7 ms where little is to be
done; where much is, turns that wait for it are fewer and larger."""


class _Event(NamedTuple):
    key: str
    value: bytes
    delivered: Delivered


@dataclass(slots=True)
class _Turn:
    """What waits in one loop, and how many events of the turn before are on their way."""

    events: list[_Event] = field(default_factory=list[_Event])
    calls: dict[Callable[[], None], None] = field(default_factory=dict[Callable[[], None], None])
    is_due: bool = False
    hold: asyncio.TimerHandle | None = None
    on_their_way: int = 0


class Turns:
    """Writes events at the end of each turn of a loop, unless those of the turn before are not durable yet: then with
    them, as Nagle's algorithm does. One for all event loops of a store.

    Args:
        patience_s: how long a full send buffer may have no room before an event counts as lost.
    """

    def __init__(self, publisher: KafkaPublisher, patience_s: float) -> None:
        self._publisher = publisher
        self._patience_s = patience_s
        self._lock = threading.Lock()
        self._turns: dict[asyncio.AbstractEventLoop, _Turn] = {}

    def write(self, key: str, value: bytes, delivered: Delivered) -> None:
        """Write an encoded event at the end of this turn of the running loop.

        Args:
            value: of a size that was checked.
            delivered: called once it is durable or lost; on any thread.
        """
        loop, turn = self._due()
        turn.events.append(_Event(key, value, partial(self._delivered, loop, turn, delivered)))

    def at_end(self, call: Callable[[], None]) -> None:
        """Make that call once at the end of this turn, however many ask for it."""
        self._due()[1].calls[call] = None

    def _due(self) -> tuple[asyncio.AbstractEventLoop, _Turn]:
        loop = asyncio.get_running_loop()
        turn = self._turns.get(loop)
        if turn is None:
            with self._lock:
                self._turns = {known: turn for known, turn in self._turns.items() if not known.is_closed()}
                turn = self._turns[loop] = _Turn()
        if not turn.is_due:
            turn.is_due = True
            loop.call_soon(self._end, loop, turn)
        return loop, turn

    def _end(self, loop: asyncio.AbstractEventLoop, turn: _Turn) -> None:
        with self._lock:
            if turn.on_their_way:
                turn.hold = loop.call_later(HOLD_S_MAX, self._release, loop, turn)
                return
        self._release(loop, turn)

    def _release(self, loop: asyncio.AbstractEventLoop, turn: _Turn) -> None:
        if not turn.is_due:
            return  # done by the time the round trip was over
        with self._lock:
            turn.is_due = False
            if turn.hold is not None:
                turn.hold.cancel()
                turn.hold = None
            events, turn.events = turn.events, []
            calls, turn.calls = turn.calls, {}
            turn.on_their_way += len(events)
        for call in calls:
            call()
        self._hand_over(loop, events, time.monotonic() + self._patience_s)

    def _hand_over(self, loop: asyncio.AbstractEventLoop, events: Sequence[_Event], until_s: float) -> None:
        records = [Outgoing(ROLLOUT_EVENTS, event.key, event.value) for event in events]
        try:
            taken = self._publisher.send_all(records, [event.delivered for event in events])
        except LightstreamError as error:  # no cluster is known: none was sent
            _tell(events, PublishError(error.message, next_step=error.next_step))
            return
        left = events[taken:]
        if not left:
            return
        if time.monotonic() <= until_s:
            loop.call_later(BUFFER_PAUSE_S, self._hand_over, loop, left, until_s)
            return
        full = BackpressureError(
            f"the send buffer had no room for an event within {self._patience_s:g} s.",
            next_step="Is Kafka reachable? LIGHTSTREAM_SEND_BUFFER_BYTES_MAX sets the size.",
        )
        _tell(left, full)

    def _delivered(
        self, loop: asyncio.AbstractEventLoop, turn: _Turn, delivered: Delivered, error: PublishError | None
    ) -> None:
        delivered(error)
        with self._lock:
            turn.on_their_way -= 1
            is_held = turn.hold is not None and not turn.on_their_way
        if is_held:
            call_in(loop, partial(self._release, loop, turn))


def _tell(events: Sequence[_Event], error: PublishError) -> None:
    for event in events:
        event.delivered(error)
