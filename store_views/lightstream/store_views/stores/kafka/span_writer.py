"""Writes spans, each once. Of a repeat nobody is told "that one is known" before it is durable."""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import NamedTuple, TypeAlias

from lightstream.runtime.kafka import Position
from lightstream.schemas.types import Span

from .._loop_calls import future_in

__all__ = ["SpanWriter"]

SPAN_IDS_KEPT_MAX = 100_000
"""Of the spans written last, to tell repeats (about 20 MB); the view collapses those that come later still."""

Key: TypeAlias = tuple[str, str, str]
HandOver: TypeAlias = Callable[[str, bytes], Awaitable["Future[Position]"]]


class _OnItsWay(NamedTuple):
    """A span that a call is about to write, or has handed over.

    Attributes:
        durable: whether it is; ``False`` where it was never handed over; the error where it was lost.
    """

    key: Key
    number: int
    durable: Future[bool]


class SpanWriter:
    """Which spans were written here of late, and which are on their way. Thread-safe, for any number of event loops.

    Args:
        hand_over: gives the encoded record of a key to the client of Kafka.
    """

    def __init__(self, hand_over: HandOver) -> None:
        self._hand_over = hand_over
        self._lock = threading.Lock()
        self._on_their_way: dict[Key, Future[bool]] = {}
        self._written: OrderedDict[Key, None] = OrderedDict()
        self._last: dict[int, int] = {}

    async def keep(self, spans: Sequence[Span], encoded: Sequence[bytes]) -> list[Span]:
        """Have all these durable, and return those that this call wrote; another may have written the others.

        Raises:
            PublishError: one did not become durable.
        """
        keys = [(span.rollout_id, span.attempt_id, span.span_id) for span in spans]
        new = set[int]()
        left: Sequence[int] = range(len(spans))
        while left:
            ours, theirs = self._begun(keys, left)
            await self._handed_over(ours, encoded)
            loop = asyncio.get_running_loop()
            outcomes = await asyncio.gather(*(future_in(loop, one.durable) for one in (*ours, *theirs)))
            new.update(one.number for one in ours)
            # Whoever was to write these went away before it had handed them over.
            left = [one.number for one, is_durable in zip(theirs, outcomes[len(ours) :], strict=True) if not is_durable]
        return [spans[number] for number in sorted(new)]

    def last(self) -> dict[int, int]:
        """Of each partition, the offset of the last span written here, or that somebody here has seen."""
        with self._lock:
            return dict(self._last)

    def seen(self, offsets: Mapping[int, int]) -> None:
        """Somebody here has seen the spans at these offsets."""
        with self._lock:
            for partition, offset in offsets.items():
                self._last[partition] = max(offset, self._last.get(partition, -1))

    def _begun(self, keys: Sequence[Key], numbers: Sequence[int]) -> tuple[list[_OnItsWay], list[_OnItsWay]]:
        """Of the spans that are not written yet, those that are ours to write, and those that are on their way."""
        ours: list[_OnItsWay] = []
        theirs: list[_OnItsWay] = []
        with self._lock:
            for number in numbers:
                key = keys[number]
                if key in self._written:
                    continue
                durable = self._on_their_way.get(key)
                if durable is not None:
                    theirs.append(_OnItsWay(key, number, durable))
                else:
                    durable = self._on_their_way[key] = Future()
                    ours.append(_OnItsWay(key, number, durable))
        return ours, theirs

    async def _handed_over(self, ours: Sequence[_OnItsWay], encoded: Sequence[bytes]) -> None:
        """Hand them over in their order. What ends this early leaves the others to whoever asks for them again."""
        count = 0
        try:
            for one in ours:
                sent = await self._hand_over(one.key[0], encoded[one.number])
                count += 1
                sent.add_done_callback(partial(self._sent, one))
        finally:
            for one in ours[count:]:
                with self._lock:
                    self._on_their_way.pop(one.key, None)
                one.durable.set_result(False)

    def _sent(self, one: _OnItsWay, sent: Future[Position]) -> None:
        """It is durable or lost, whether or not its writer still waits. On any thread."""
        error = sent.exception()
        with self._lock:
            self._on_their_way.pop(one.key, None)
            if error is None:
                self._written[one.key] = None
                if len(self._written) > SPAN_IDS_KEPT_MAX:
                    self._written.popitem(last=False)
        if error is not None:
            one.durable.set_exception(error)
            return
        place = sent.result()
        self.seen({place.partition: place.offset})
        one.durable.set_result(True)
