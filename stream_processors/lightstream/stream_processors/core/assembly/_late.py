"""What comes for an attempt after its closing record: taken, left to the log, or refused."""

from __future__ import annotations

from dataclasses import dataclass

from lightstream.runtime.clock import NANOS_PER_SECOND
from lightstream.schemas.records import AttemptClosed, SpanRecord

from ._attempt import OpenAttempt
from ._closed import AttemptKey, ClosedAttempt, ClosedAttempts
from ._rules import AssemblyRules
from ._unfinished import UnfinishedAttempt

__all__ = ["LateSpan", "LateSpans"]


@dataclass(frozen=True, slots=True)
class LateSpan:
    """A span of an attempt that is neither open nor held: the log shows whether it revises a trajectory.

    Attributes:
        offset, logged_unix_nano: where it lies, and when it was logged.
        places: (first, last) offsets, both inclusive, where everything of the attempt up to it lies; ``None`` where
            that is not known.
    """

    key: AttemptKey
    offset: int
    logged_unix_nano: int
    places: tuple[tuple[int, int], ...] | None


@dataclass(slots=True)
class _Revised:
    attempt: OpenAttempt
    closed: AttemptClosed
    revision: int
    last_offset: int


class LateSpans:
    """Late spans of one partition, and the revisions that they lead to.

    Attributes:
        refused_count: spans that came too late, or were too many.
    """

    def __init__(self, closed: ClosedAttempts, rules: AssemblyRules, *, reads_back: bool) -> None:
        self._closed = closed
        self._rules = rules
        self._reads_back = reads_back
        self._revised: dict[AttemptKey, _Revised] = {}
        self._to_read: list[LateSpan] = []
        self.refused_count = 0

    def on_span(self, span: SpanRecord, key: AttemptKey, offset: int, logged_unix_nano: int) -> None:
        """Take a span whose attempt is not open."""
        entry = self._closed.get(key)
        if entry is None:
            if self._reads_back:
                self._to_read.append(LateSpan(key, offset, logged_unix_nano, None))
            return
        if offset <= entry.closed_offset:
            return
        if self._refuses(entry, logged_unix_nano):
            self.refused_count += 1
            return
        self._closed.late_came()
        entry.late_offsets.append(offset)
        attempt = entry.attempt
        if attempt is None or entry.closed is None:
            if self._reads_back:
                self._to_read.append(LateSpan(key, offset, logged_unix_nano, _places(entry)))
            return
        before = attempt.span_count, attempt.size_bytes
        if attempt.add(span, offset):
            entry.revision += 1
            self._revised[key] = _Revised(attempt, entry.closed, entry.revision, offset)
            self._closed.grew(attempt.span_count - before[0], attempt.size_bytes - before[1])

    def take_revised(self, partition: int) -> list[UnfinishedAttempt]:
        """Each attempt that was revised since this was last called, for its newest revision to be made."""
        revised, self._revised = self._revised, {}
        return [UnfinishedAttempt(r.attempt, r.closed, r.last_offset, partition, r.revision) for r in revised.values()]

    @property
    def largest_revised(self) -> int:
        """Spans of the largest attempt that waits for :meth:`take_revised`."""
        return max((revised.attempt.span_count for revised in self._revised.values()), default=0)

    def take_to_read(self) -> list[LateSpan]:
        """Spans since this was last called for which the log has to be read, in the order of the log."""
        taken, self._to_read = self._to_read, []
        return taken

    def _refuses(self, entry: ClosedAttempt, logged_unix_nano: int) -> bool:
        late_nanos = logged_unix_nano - entry.opened_unix_nano
        return (
            len(entry.late_offsets) >= self._rules.late_spans_max
            or late_nanos > self._rules.late_span_s_max * NANOS_PER_SECOND
        )


def _places(entry: ClosedAttempt) -> tuple[tuple[int, int], ...]:
    return ((entry.first_offset, entry.closed_offset), *((offset, offset) for offset in entry.late_offsets))
