"""Closed attempts, as far as late spans may still revise them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from lightstream.schemas.records import AttemptClosed

from ._attempt import OpenAttempt

__all__ = ["HELD_BYTES_MAX", "HELD_SPANS_MAX", "AttemptKey", "ClosedAttempt", "ClosedAttempts"]

CLOSED_REMEMBERED_MAX = 100_000
"""Attempts of which is known that and where they closed; about 30 MB."""

HELD_SPANS_MAX = 10_000
HELD_BYTES_MAX = 64 * 1024 * 1024
"""What is held of closed attempts, so that exporters which flush seconds after the end cost no reading of the log: the
last minute of a partition with 160 spans/s, or the last 13 of 5 MB."""

HELD_AFTER_A_LATE_SPAN = 10_000
"""Attempts that are held, as far as there is room, once a late span came. Where none comes nothing is held: freeing
spans that have left the processor's caches costs 2 microseconds each, a tenth of what assembling them does."""

AttemptKey = tuple[str, str]
"""(rollout id, attempt id)."""


@dataclass(slots=True)
class ClosedAttempt:
    """Where a closed attempt lies, and what came late to it.

    Attributes:
        attempt, closed: what is held to revise it; ``None`` once it is let go, and the log has to be read.
        late_offsets: of the late spans that count, repeated ones too.
        revision: how many of these changed something.
    """

    opened_unix_nano: int
    first_offset: int
    closed_offset: int
    attempt: OpenAttempt | None
    closed: AttemptClosed | None
    late_offsets: list[int] = field(default_factory=list[int])
    revision: int = 0


class ClosedAttempts:
    """The last attempts that closed; the oldest are let go of, first what is held of them, then where they lie.

    Args:
        spans_max, bytes_max: how much to hold of all together.
        always: hold from the first attempt on, not only once late spans come.
    """

    def __init__(self, spans_max: int, bytes_max: int, *, always: bool) -> None:
        self._always = always
        self._to_hold = 0
        self._spans_max = spans_max
        self._bytes_max = bytes_max
        self._known: dict[AttemptKey, ClosedAttempt] = {}
        self._held: deque[ClosedAttempt] = deque()
        self._spans = 0
        self._bytes = 0

    def get(self, key: AttemptKey) -> ClosedAttempt | None:
        return self._known.get(key)

    def __contains__(self, key: AttemptKey) -> bool:
        return key in self._known

    def add(
        self, key: AttemptKey, attempt: OpenAttempt, closed: AttemptClosed, offset: int, *, hold: bool = True
    ) -> None:
        """An attempt closed at ``offset``.

        Args:
            hold: whether it may be held, as far as there is room and reason.
        """
        entry = ClosedAttempt(attempt.opened_unix_nano, attempt.first_offset, offset, None, None)
        self._known[key] = entry
        if hold and (self._always or self._to_hold):
            self._to_hold -= not self._always
            entry.attempt, entry.closed = attempt, closed
            self._held.append(entry)
            self.grew(attempt.span_count, attempt.size_bytes)
        if len(self._known) > CLOSED_REMEMBERED_MAX:
            del self._known[next(iter(self._known))]

    def late_came(self) -> None:
        """A late span came: more may follow."""
        self._to_hold = HELD_AFTER_A_LATE_SPAN

    def grew(self, spans: int, size_bytes: int) -> None:
        """More is held; let go of the oldest where it is too much."""
        self._spans += spans
        self._bytes += size_bytes
        while self._held and (self._spans > self._spans_max or self._bytes > self._bytes_max):
            entry = self._held.popleft()
            if entry.attempt is not None:
                self._spans -= entry.attempt.span_count
                self._bytes -= entry.attempt.size_bytes
            entry.attempt = entry.closed = None
