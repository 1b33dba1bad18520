"""The offsets up to which the view reflects the log, and a wait until it reflects more."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import TypeAlias

LOOK_S = 5.0
"""Somebody who has read asks again within this time, as a page does that shows a run."""

Place: TypeAlias = tuple[str, int]
"""Unprefixed topic name and partition."""


class Positions:
    """The next offset to be reflected, per partition. Thread-safe; waiters are woken by the commit itself."""

    def __init__(self, next_offsets: Mapping[Place, int] | None = None) -> None:
        self._changed = threading.Condition()
        self._next = dict(next_offsets or {})
        self._waiters: dict[object, Mapping[Place, int]] = {}
        self._listeners: dict[object, Callable[[], None]] = {}
        self._looked_s = -math.inf
        self._closed: str | None = None

    def awaits(self, sent: Mapping[Place, int], more: Mapping[Place, int]) -> bool:
        """Whether somebody waits for the positions that ``more`` completes.

        Args:
            sent: next offsets that are on their way to be reflected.
            more: those that could follow them.
        """
        with self._changed:
            return any(
                _below(required, sent) and not _below(required, {**sent, **more}) for required in self._waiters.values()
            )

    @property
    def is_watched(self) -> bool:
        """Whether somebody looks: a listener, or a reader of the last few seconds."""
        return bool(self._listeners) or time.monotonic() - self._looked_s < LOOK_S

    @property
    def closed(self) -> str | None:
        """The error after which nothing more will be reflected; ``None`` while the log is followed."""
        return self._closed

    def snapshot(self) -> dict[Place, int]:
        """Place -> offset of the first record that is not yet reflected."""
        with self._changed:
            return dict(self._next)

    def advance(self, next_offsets: Mapping[Place, int]) -> None:
        """Say that everything below these offsets is reflected."""
        with self._changed:
            self._next.update(next_offsets)
            self._changed.notify_all()
            listeners = list(self._listeners.values())
        for listener in listeners:
            listener()

    def close(self, reason: str) -> None:
        """Wake every waiter; nothing more will be reflected, because of ``reason``."""
        with self._changed:
            self._closed = self._closed or reason
            self._changed.notify_all()
            listeners = list(self._listeners.values())
        for listener in listeners:
            listener()

    @contextmanager
    def listening(self, listener: Callable[[], None]) -> Generator[None, None, None]:
        """Call ``listener`` after each advance and at the end, within the block. It must return at once."""
        key = object()
        with self._changed:
            self._listeners[key] = listener
        try:
            yield
        finally:
            with self._changed:
                del self._listeners[key]

    def missing(self, required: Mapping[Place, int]) -> dict[Place, tuple[int, int]]:
        """Required next offsets that are not reached: place -> (required, reached)."""
        with self._changed:
            return self._missing(required)

    def look(self) -> None:
        """Say that somebody reads: for some seconds, new records are reflected sooner."""
        self._looked_s = time.monotonic()

    def wait_for(
        self, required: Mapping[Place, int], timeout_s: float, *, urgent: bool = True
    ) -> dict[Place, tuple[int, int]]:
        """Block until every place has reached its required next offset, at most ``timeout_s`` seconds.

        Args:
            urgent: whether a transaction is to be made for this waiter.

        Returns:
            What is still missing, as :meth:`missing`; empty when all is reflected.
        """
        deadline = time.monotonic() + timeout_s
        waiter = object()
        with self._changed:
            if urgent:
                self._waiters[waiter] = required
            try:
                while (missing := self._missing(required)) and self._closed is None:
                    left_s = deadline - time.monotonic()
                    if left_s <= 0 or not self._changed.wait(left_s):
                        return self._missing(required)
                return missing
            finally:
                self._waiters.pop(waiter, None)

    def _missing(self, required: Mapping[Place, int]) -> dict[Place, tuple[int, int]]:
        return {
            place: (offset, self._next.get(place, 0))
            for place, offset in required.items()
            if self._next.get(place, 0) < offset
        }


def _below(required: Mapping[Place, int], reached: Mapping[Place, int]) -> bool:
    """Whether a required next offset is not reached."""
    return any(reached.get(place, 0) < offset for place, offset in required.items())
