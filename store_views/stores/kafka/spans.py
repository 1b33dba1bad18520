"""Writes each span once. A duplicate is reported as known only after the first copy is durable."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import NamedTuple, TypeAlias

from lightstream.runtime.kafka import Position
from lightstream.schemas.types import Span

SPAN_IDS_KEPT_MAX = 100_000
"""Of the spans written last, to tell repeats (about 20 MB); the view collapses those that come later still."""

Key: TypeAlias = tuple[str, str, str]
HandOver: TypeAlias = Callable[[str, bytes], Awaitable["Future[Position]"]]


class _InFlight(NamedTuple):
    """A span that a call is about to write, or has handed over.

    Attributes:
        durable: whether it is; ``False`` where it was never handed over; the error where it was lost.
    """

    key: Key
    number: int
    durable: asyncio.Future[bool]


class SpanWriter:
    """Knows which spans were written here of late, and which are on their way. Belongs to one event loop.

    Args:
        hand_over: gives the encoded record of a key to the client of Kafka.
        post: calls something in the loop, from any thread.
    """

    def __init__(self, hand_over: HandOver, post: Callable[[Callable[[], None]], None]) -> None:
        self._hand_over = hand_over
        self._post = post
        self._in_flight: dict[Key, asyncio.Future[bool]] = {}
        self._written: OrderedDict[Key, None] = OrderedDict()
        self._last: dict[int, int] = {}

    async def append(self, spans: Sequence[Span], encoded: Sequence[bytes]) -> list[Span]:
        """Have all these durable, and return the spans that this call wrote; another may have written the others.

        Raises:
            PublishError: one did not become durable.
        """
        keys = [(span.rollout_id, span.attempt_id, span.span_id) for span in spans]
        new = set[int]()
        remaining: Sequence[int] = range(len(spans))
        while remaining:
            ours, theirs = self._begin(keys, remaining)
            await self._hand_over_all(ours, encoded)
            # Shielded: a caller that leaves takes nothing from others who wait for the same span.
            outcomes = await asyncio.gather(*(asyncio.shield(one.durable) for one in (*ours, *theirs)))
            new.update(one.number for one in ours)
            # The call that was to write these ended before it had handed them over.
            remaining = [
                one.number for one, is_durable in zip(theirs, outcomes[len(ours) :], strict=True) if not is_durable
            ]
        return [spans[number] for number in sorted(new)]

    def last(self) -> dict[int, int]:
        """Of each partition, the offset of the last span written here, or that a caller here has seen."""
        return dict(self._last)

    def observe(self, offsets: Mapping[int, int]) -> None:
        """A caller here has seen the spans at these offsets."""
        for partition, offset in offsets.items():
            self._last[partition] = max(offset, self._last.get(partition, -1))

    def _begin(self, keys: Sequence[Key], numbers: Sequence[int]) -> tuple[list[_InFlight], list[_InFlight]]:
        """Of the spans that are not written yet, those that are ours to write, and those that are on their way."""
        ours: list[_InFlight] = []
        theirs: list[_InFlight] = []
        for number in numbers:
            key = keys[number]
            if key in self._written:
                continue
            durable = self._in_flight.get(key)
            if durable is not None:
                theirs.append(_InFlight(key, number, durable))
            else:
                durable = self._in_flight[key] = asyncio.get_running_loop().create_future()
                ours.append(_InFlight(key, number, durable))
        return ours, theirs

    async def _hand_over_all(self, ours: Sequence[_InFlight], encoded: Sequence[bytes]) -> None:
        """Hand them over in their order. If this ends early, the others are left to the next call that has them."""
        count = 0
        try:
            for one in ours:
                sent = await self._hand_over(one.key[0], encoded[one.number])
                count += 1
                sent.add_done_callback(lambda done, one=one: self._post(partial(self._on_sent, one, done)))  # type: ignore[misc]  # bound per span
        finally:
            for one in ours[count:]:
                self._in_flight.pop(one.key, None)
                one.durable.set_result(False)

    def _on_sent(self, one: _InFlight, sent: Future[Position]) -> None:
        """It is durable or lost, whether or not its writer still waits."""
        self._in_flight.pop(one.key, None)
        error = sent.exception()
        if error is not None:
            one.durable.set_exception(error)
            one.durable.exception()  # looked at: nobody may wait any more
            return
        self._written[one.key] = None
        if len(self._written) > SPAN_IDS_KEPT_MAX:
            self._written.popitem(last=False)
        place = sent.result()
        self.observe({place.partition: place.offset})
        one.durable.set_result(True)
