"""Writes events and waits for their results: few events at once, and of many a few hundred at a time."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias

from lightstream.runtime.kafka import Delivered, KafkaPublisher, Outgoing
from lightstream.runtime.loop_thread import LoopThread
from lightstream.schemas.errors import BackpressureError, LightstreamError, PublishError, ServiceUnavailableError
from lightstream.schemas.records import RolloutEvent, RolloutState
from lightstream.schemas.topics import ROLLOUT_EVENTS

from .tail import LogTail

EncodedEvent: TypeAlias = tuple[RolloutEvent, bytes]
"""An event and how it is written."""

SLICE_EVENTS = 64
SLICES_AT_ONCE = 4
"""Of many events that one call writes, so many have no result yet: a training step goes out in one request, and
thousands of tasks do not hold up a request for work, which comes after them in the log."""

BUFFER_PAUSE_S = 0.01
"""Between looks whether a full send buffer has room."""


class _Pending(NamedTuple):
    key: str
    value: bytes
    delivered: Delivered


class EventWriter:
    """Belongs to one event loop. What is written in one turn of it shares a request.

    Args:
        tail: reads the results.
        loop: of this.
        patience_s: how long a result may take once its event is durable; and a full send buffer to have room.
    """

    def __init__(self, publisher: KafkaPublisher, tail: LogTail, loop: LoopThread, patience_s: float) -> None:
        self._publisher = publisher
        self._tail = tail
        self._loop = loop
        self._patience_s = patience_s
        self._pending: list[_Pending] = []
        self._before_flush: dict[Callable[[], None], None] = {}
        self._is_due = False

    async def submit(self, events: Sequence[EncodedEvent]) -> list[RolloutState]:
        """Write events and return the states that carry their results, in the order of the events.

        Raises:
            ServiceUnavailableError: no result in time, or before the store was closed; what was written is durable and
                will take effect later.
            PublishError: one of them did not become durable; those after it may not have been written.
        """
        if len(events) <= SLICE_EVENTS:
            return await self._slice(events)
        states: list[RolloutState] = []
        slices: deque[asyncio.Task[list[RolloutState]]] = deque()
        try:
            for start in range(0, len(events), SLICE_EVENTS):
                if len(slices) == SLICES_AT_ONCE:
                    states += await slices.popleft()
                slices.append(asyncio.create_task(self._slice(events[start : start + SLICE_EVENTS])))
            while slices:
                states += await slices.popleft()
        finally:
            for task in slices:
                task.cancel()
            await asyncio.gather(*slices, return_exceptions=True)
        return states

    def write(self, key: str, value: bytes, delivered: Delivered) -> None:
        """Write an encoded event at the end of this turn of the loop.

        Args:
            value: of a size that was checked.
            delivered: called in the loop, once it is durable or lost.
        """
        self._schedule()
        self._pending.append(_Pending(key, value, delivered))

    def before_flush(self, call: Callable[[], None]) -> None:
        """Make that call once at the end of this turn, however many ask for it."""
        self._schedule()
        self._before_flush[call] = None

    async def _slice(self, events: Sequence[EncodedEvent]) -> list[RolloutState]:
        """As :meth:`submit`, all at once."""
        if not events:
            return []
        results = [self._tail.expect_result(event.rollout_id, event.event_id) for event, _ in events]
        sent = _Sent(len(events))
        for event, value in events:
            self.write(event.rollout_id, value, sent.delivered)
        all_results = asyncio.gather(*results)
        # Cancelled while it waits, it ends with an exception, of which the loop complains unless somebody looks at it.
        all_results.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            # A result says that its event is durable: beside it only losses are waited for.
            await asyncio.wait((all_results, sent.done), return_when=asyncio.FIRST_COMPLETED)
            if not all_results.done():
                sent.done.result()
                await asyncio.wait((all_results,), timeout=self._patience_s)
            if not all_results.done():
                raise ServiceUnavailableError(
                    f"the worker did not answer event {events[0][0].event_id} within {self._patience_s:g} s.",
                    next_step="Is the worker running? `lightstream status` shows it; `lightstream worker` starts it.",
                )
            return all_results.result()
        finally:
            sent.abandon()
            all_results.cancel()
            for (event, _), result in zip(events, results, strict=True):
                self._tail.forget_result(event.rollout_id, event.event_id, result)

    def _schedule(self) -> None:
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._is_due = False
        calls, self._before_flush = self._before_flush, {}
        for call in calls:
            call()
        pending, self._pending = self._pending, []
        if pending:
            self._hand_over(pending, time.monotonic() + self._patience_s)

    def _hand_over(self, pending: Sequence[_Pending], until_s: float) -> None:
        records = [Outgoing(ROLLOUT_EVENTS, each.key, each.value) for each in pending]
        try:
            accepted = self._publisher.send_all(records, [partial(self._on_report, each.delivered) for each in pending])
        except LightstreamError as error:  # no cluster is known: none was sent
            _fail(pending, PublishError(error.message, next_step=error.next_step))
            return
        rest = pending[accepted:]
        if not rest:
            return
        if time.monotonic() <= until_s:
            asyncio.get_running_loop().call_later(BUFFER_PAUSE_S, self._hand_over, rest, until_s)
            return
        full = BackpressureError(
            f"the send buffer had no room for an event within {self._patience_s:g} s.",
            next_step="Is Kafka reachable? LIGHTSTREAM_SEND_BUFFER_BYTES_MAX sets the size.",
        )
        _fail(rest, full)

    def _on_report(self, delivered: Delivered, error: PublishError | None) -> None:
        """On the publisher's thread."""
        self._loop.post(partial(delivered, error))


class _Sent:
    """Some events on their way.

    Attributes:
        done: resolved once all are durable, or fails with the first loss.
    """

    def __init__(self, count: int) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._outstanding = count

    def delivered(self, error: PublishError | None) -> None:
        """One of them is durable, or lost."""
        self._outstanding -= 1
        if self.done.done():
            return
        if error is not None:
            self.done.set_exception(error)
        elif not self._outstanding:
            self.done.set_result(None)

    def abandon(self) -> None:
        """Nobody waits any more."""
        if not self.done.cancel() and not self.done.cancelled():
            self.done.exception()  # looked at: asyncio logs errors that nobody did


def _fail(pending: Sequence[_Pending], error: PublishError) -> None:
    for each in pending:
        each.delivered(error)
