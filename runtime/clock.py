"""Clocks. Code that depends on the time takes a :class:`Clock`, which a test can move by hand."""

from __future__ import annotations

import time
from typing import Protocol

NANOS_PER_SECOND = 1_000_000_000
"""An integer: dividing by a float would round twice, and lose a quarter of a microsecond."""

NANOS_PER_MILLISECOND = 1_000_000
"""Kafka stamps records in milliseconds."""


class Clock(Protocol):
    """Source of wall-clock time."""

    def now_unix_nano(self) -> int:
        """Nanoseconds since 1970-01-01 UTC."""
        ...


class SystemClock:
    """The machine's clock."""

    def now_unix_nano(self) -> int:
        return time.time_ns()


class ManualClock:
    """A clock that moves only when told to."""

    def __init__(self, now_unix_nano: int = 1_700_000_000_000_000_000) -> None:
        self._now_unix_nano = now_unix_nano

    def now_unix_nano(self) -> int:
        return self._now_unix_nano

    def advance(self, seconds: float) -> None:
        """Move forward by ``seconds`` (may not be negative)."""
        if seconds < 0:
            raise ValueError(f"a clock does not run backwards (asked for {seconds} s)")
        self._now_unix_nano += int(seconds * NANOS_PER_SECOND)
