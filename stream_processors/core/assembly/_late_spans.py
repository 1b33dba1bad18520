"""Closed attempts: their deferred assembly, and late spans, which are taken, left to the log, or refused."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from lightstream.runtime.clock import NANOS_PER_SECOND
from lightstream.schemas.records import AttemptClosed, SpanRecord, Trajectory

from ._buffer import AttemptBuffer
from ._rules import AssemblyRules
from ._trajectory import finish

CLOSED_REMEMBERED_MAX = 100_000
"""Attempts of which is known that and where they closed; about 30 MB."""

KEPT_SPANS_MAX = 10_000
KEPT_BYTES_MAX = 64 * 1024 * 1024
"""Kept of closed attempts' buffers, so that exporters which flush seconds after the end cost no reading of the log: the
last minute of a partition with 160 spans/s, or the last 13 of 5 MB."""

KEPT_AFTER_A_LATE_SPAN = 10_000
"""Attempts whose buffers are kept, as far as there is room, once a late span came. Where none comes none is kept:
freeing spans that have left the processor's caches costs 2 microseconds each, a tenth of what assembling them does."""

AttemptKey = tuple[str, str]
"""(rollout id, attempt id)."""


@dataclass(frozen=True, slots=True)
class DeferredAssembly:
    """A closed attempt whose trajectory, or the next revision of it, is still to be made by the caller.

    A detached attempt (:meth:`Assembler.detach`) belongs to the caller alone, so any thread may assemble it; a revised
    one (:meth:`Assembler.take_revised`) may be assembled while its assembler takes no record.
    """

    _buffer: AttemptBuffer
    _closed: AttemptClosed
    _last_offset: int
    _partition: int
    _revision: int = 0

    @property
    def rollout_id(self) -> str:
        """The rollout's id."""
        return self._closed.rollout_id

    @property
    def attempt_id(self) -> str:
        """The attempt's id."""
        return self._closed.attempt_id

    @property
    def first_offset(self) -> int:
        """Offset of the attempt's opening."""
        return self._buffer.first_offset

    @property
    def span_count(self) -> int:
        """Distinct spans of the attempt."""
        return self._buffer.span_count

    def trajectory(self) -> Trajectory:
        """The attempt's trajectory; about 10 microseconds per span."""
        return finish(self._buffer, self._closed, self._partition, self._last_offset, self._revision)


@dataclass(slots=True)
class _ClosedAttempt:
    """Offsets of a closed attempt and of the late spans that came for it.

    Attributes:
        buffer, closed: kept to revise it; ``None`` once it is let go, and the log has to be read.
        late_offsets: of the late spans that count, repeated ones too.
        revision: how many of these changed something.
    """

    opened_unix_nano: int
    first_offset: int
    closed_offset: int
    buffer: AttemptBuffer | None = None
    closed: AttemptClosed | None = None
    late_offsets: list[int] = field(default_factory=list[int])
    revision: int = 0

    @property
    def ranges(self) -> tuple[tuple[int, int], ...]:
        """(first, last) offsets, both inclusive, that hold all records of the attempt."""
        return ((self.first_offset, self.closed_offset), *((offset, offset) for offset in self.late_offsets))


class ClosedAttempts:
    """The last attempts that closed. Of the oldest first the buffers are let go, then the offsets.

    Args:
        spans_max, bytes_max: how much to keep of all buffers together.
        always: keep buffers from the first attempt on, not only once late spans come.
    """

    def __init__(self, spans_max: int, bytes_max: int, *, always: bool) -> None:
        self._always = always
        self._to_keep = 0
        self._spans_max = spans_max
        self._bytes_max = bytes_max
        self._known: dict[AttemptKey, _ClosedAttempt] = {}
        self._kept: deque[_ClosedAttempt] = deque()
        self._spans = 0
        self._bytes = 0

    def get(self, key: AttemptKey) -> _ClosedAttempt | None:
        return self._known.get(key)

    def __contains__(self, key: AttemptKey) -> bool:
        return key in self._known

    def add(
        self, key: AttemptKey, buffer: AttemptBuffer, closed: AttemptClosed, offset: int, *, keep: bool = True
    ) -> None:
        """Take an attempt that closed at ``offset``.

        Args:
            keep: whether its buffer may be kept, as far as there is room and reason.
        """
        entry = _ClosedAttempt(buffer.opened.opened_unix_nano, buffer.first_offset, offset)
        self._known[key] = entry
        if keep and (self._always or self._to_keep):
            self._to_keep -= not self._always
            entry.buffer, entry.closed = buffer, closed
            self._kept.append(entry)
            self.grew(buffer.span_count, buffer.size_bytes)
        if len(self._known) > CLOSED_REMEMBERED_MAX:
            del self._known[next(iter(self._known))]

    def late_came(self) -> None:
        """A late span came: more may follow."""
        self._to_keep = KEPT_AFTER_A_LATE_SPAN

    def grew(self, spans: int, size_bytes: int) -> None:
        """More is kept; let go of the oldest where it is too much."""
        self._spans += spans
        self._bytes += size_bytes
        while self._kept and (self._spans > self._spans_max or self._bytes > self._bytes_max):
            entry = self._kept.popleft()
            if entry.buffer is not None:
                self._spans -= entry.buffer.span_count
                self._bytes -= entry.buffer.size_bytes
            entry.buffer = entry.closed = None


@dataclass(frozen=True, slots=True)
class LateSpan:
    """A span of an attempt whose buffer is not in memory: the log shows whether it revises a trajectory.

    Attributes:
        offset, logged_unix_nano: its offset, and when it was logged.
        ranges: (first, last) offsets, both inclusive, that hold everything of the attempt up to the span; ``None``
            where they are not known.
    """

    key: AttemptKey
    offset: int
    logged_unix_nano: int
    ranges: tuple[tuple[int, int], ...] | None


class LateSpans:
    """Late spans of one partition, and the revisions that they lead to.

    Attributes:
        refused_count: spans that came too late, or were too many.
    """

    def __init__(self, closed: ClosedAttempts, rules: AssemblyRules, partition: int, *, reads_back: bool) -> None:
        self._closed = closed
        self._rules = rules
        self._partition = partition
        self._reads_back = reads_back
        self._revised: dict[AttemptKey, DeferredAssembly] = {}
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
        buffer = entry.buffer
        if buffer is None or entry.closed is None:
            if self._reads_back:
                self._to_read.append(LateSpan(key, offset, logged_unix_nano, entry.ranges))
            return
        before = buffer.span_count, buffer.size_bytes
        if buffer.add(span, offset):
            entry.revision += 1
            self._revised[key] = DeferredAssembly(buffer, entry.closed, offset, self._partition, entry.revision)
            self._closed.grew(buffer.span_count - before[0], buffer.size_bytes - before[1])

    def take_revised(self) -> list[DeferredAssembly]:
        """Each attempt that was revised since this was last called, for its newest revision to be made."""
        revised, self._revised = self._revised, {}
        return list(revised.values())

    @property
    def largest_revised(self) -> int:
        """Spans of the largest attempt that waits for :meth:`take_revised`."""
        return max((revised.span_count for revised in self._revised.values()), default=0)

    def take_to_read(self) -> list[LateSpan]:
        """Spans since this was last called for which the log has to be read, in the order of the log."""
        taken, self._to_read = self._to_read, []
        return taken

    def _refuses(self, entry: _ClosedAttempt, logged_unix_nano: int) -> bool:
        late_nanos = logged_unix_nano - entry.opened_unix_nano
        return (
            len(entry.late_offsets) >= self._rules.late_spans_max
            or late_nanos > self._rules.late_span_s_max * NANOS_PER_SECOND
        )
