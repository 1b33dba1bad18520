"""The streaming assembler of one partition of ``spans``."""

from __future__ import annotations

from collections.abc import Iterable

from lightstream.schemas.records import AssemblySpec, AttemptClosed, AttemptOpened, SpanRecord, Trajectory

from ._buffer import AttemptBuffer
from ._late_spans import (
    KEPT_BYTES_MAX,
    KEPT_SPANS_MAX,
    AttemptKey,
    ClosedAttempts,
    DeferredAssembly,
    LateSpan,
    LateSpans,
)
from ._rules import AssemblyRules
from ._trajectory import finish

KEEP_ALL = 1 << 62
"""As a number of spans or bytes to keep: as many as there are."""

LONG_SPANS_MIN = 2_000
"""From so many spans on, finishing an attempt takes long: 10 microseconds each, and as much again to write it out."""


class Assembler:
    """Folds one partition, in offset order, into one trajectory per attempt, and revisions of it.

    An attempt begins with its opening record and ends with its closing record; both, and every span, lie in the same
    partition. State is memory only: after a crash the partition is read again from :meth:`low_water` as it was last
    committed, and every attempt that had not been emitted comes out the same, field by field. An attempt whose opening
    lies below that offset was emitted before, so its remaining records are ignored.

    A rollout has one open attempt at a time. A life cycle that crashes between an opening and the state that implies it
    may begin another in its place: what was opened before under the same number, or is open when the rollout is over,
    never began, and nothing comes of it.

    A span after the closing record of its attempt revises the trajectory: revision ``n`` is the attempt with the first
    ``n`` late spans that changed anything, in every process that assembles it, however often. Revisions wait for
    :meth:`take_revisions`, so that many late spans at once cost one. Of attempts whose buffers
    are gone :meth:`take_to_read` names what to read of the log and to give to another assembler.

    Args:
        partition: recorded on trajectories as their source.
        rules: how to assemble, where a rollout has no rules of its own.
        instead: rules that hold for every rollout, whatever its own say.
        kept_spans_max, kept_bytes_max: how much of closed attempts' buffers to keep for late spans.
        reads_back: the caller uses :meth:`take_to_read`. Buffers are then kept only once late spans come.
    """

    def __init__(
        self,
        partition: int = -1,
        rules: AssemblyRules | None = None,
        *,
        kept_spans_max: int = KEPT_SPANS_MAX,
        kept_bytes_max: int = KEPT_BYTES_MAX,
        instead: AssemblySpec | None = None,
        reads_back: bool = False,
    ) -> None:
        self._partition = partition
        self._rules = rules or AssemblyRules()
        self._instead = instead
        self._open: dict[AttemptKey, AttemptBuffer] = {}  # in order of their opening, oldest first
        self._opened_last: dict[str, AttemptOpened] = {}  # of each rollout with an open attempt
        self._opened_again: dict[int, int] = {}  # offset of an opening -> of its last repeat
        self._closed = ClosedAttempts(kept_spans_max, kept_bytes_max, always=not reads_back)
        self._late = LateSpans(self._closed, self._rules, partition, reads_back=reads_back)
        self.ignored_count = 0

    @property
    def open_count(self) -> int:
        """Attempts that are open."""
        return len(self._open)

    @property
    def refused_count(self) -> int:
        """Spans that came too late to be taken, or were too many."""
        return self._late.refused_count

    def on_record(
        self, record: SpanRecord | AttemptOpened | AttemptClosed, offset: int, logged_unix_nano: int = 0
    ) -> list[Trajectory]:
        """Take one record. A repeated record changes nothing.

        Args:
            logged_unix_nano: when it was logged; 0 is never too late.

        Returns:
            The trajectory that it completes, if any.
        """
        if type(record) is SpanRecord:  # isinstance() on a pydantic model takes 2 microseconds
            rollout_id, attempt_id = record.rollout_id, record.attempt_id
            attempt = self._open.get((rollout_id, attempt_id)) if rollout_id and attempt_id else None
            if attempt is not None:
                attempt.add(record, offset)
            else:
                self.ignored_count += 1
                if rollout_id and attempt_id:
                    self._late.on_span(record, (rollout_id, attempt_id), offset, logged_unix_nano)
            return []
        if type(record) is AttemptOpened:
            self._on_opened(record, offset)
            return []
        assert type(record) is AttemptClosed  # noqa: S101  # the third of three
        key = (record.rollout_id, record.attempt_id)
        buffer = self._take_open(key, record)
        if buffer is None:
            self.ignored_count += 1
            return []
        trajectory = finish(buffer, record, self._partition, offset)
        self._closed.add(key, buffer, record, offset)
        return [trajectory]

    def on_records(self, records: Iterable[tuple[SpanRecord | AttemptOpened | AttemptClosed, int]]) -> list[Trajectory]:
        """Take many (record, offset) in offset order; returns completed trajectories, in order, then revised ones."""
        completed = [trajectory for record, offset in records for trajectory in self.on_record(record, offset)]
        return completed + self.take_revisions()

    def takes_long(self, closed: AttemptClosed) -> bool:
        """Whether :meth:`on_record` would finish a large attempt: callers with other work :meth:`detach` it."""
        attempt = self._open.get((closed.rollout_id, closed.attempt_id))
        return attempt is not None and attempt.span_count >= LONG_SPANS_MIN

    def detach(self, closed: AttemptClosed, offset: int) -> DeferredAssembly:
        """As :meth:`on_record` for the closing record of an open attempt, but leave its trajectory to the caller.

        The attempt is closed from now on, and this assembler knows no more of it than its offsets: late spans are in
        :meth:`take_to_read`. Until its trajectory is durable nothing from its opening on may be committed.

        Raises:
            KeyError: no such attempt is open; nothing changed.
        """
        key = (closed.rollout_id, closed.attempt_id)
        buffer = self._take_open(key, closed)
        if buffer is None:
            raise KeyError(key)
        self._closed.add(key, buffer, closed, offset, keep=False)
        return DeferredAssembly(buffer, closed, offset, self._partition)

    @property
    def revises_long(self) -> bool:
        """Whether :meth:`take_revisions` would finish a large attempt again."""
        return self._late.largest_revised >= LONG_SPANS_MIN

    def take_revisions(self) -> list[Trajectory]:
        """The newest revision of each attempt that was revised since this was last called."""
        return [revised.trajectory() for revised in self.take_revised()]

    def take_revised(self) -> list[DeferredAssembly]:
        """As :meth:`take_revisions`, but the caller makes each trajectory, before it gives another record."""
        return self._late.take_revised()

    def take_to_read(self) -> list[LateSpan]:
        """Late spans since this was last called for which the log has to be read, in log order."""
        return self._late.take_to_read()

    def low_water(self, next_offset: int, held_back: int | None = None) -> int:
        """The offset from which to read again after a crash: the oldest open attempt's opening, else ``next_offset``.

        Everything below may be committed, once what came out so far is durable. Never between an opening and a repeat
        of it (by a life cycle that crashed): a reader would take the repeat for the attempt's beginning.

        Args:
            held_back: from where on the caller commits nothing, for reasons of their own; what they commit then is
                :meth:`not_between`.
        """
        oldest = next((attempt.first_offset for attempt in self._open.values()), next_offset)
        lowest = self.not_between(oldest if held_back is None else min(oldest, held_back))
        self._opened_again = {first: last for first, last in self._opened_again.items() if last >= lowest}
        return self.not_between(oldest)

    def not_between(self, offset: int) -> int:
        """``offset``, or an earlier opening that is repeated there or later, above the low water."""
        for first, last in sorted(self._opened_again.items(), reverse=True):
            if offset <= last:
                offset = min(offset, first)
        return offset

    def _on_opened(self, opened: AttemptOpened, offset: int) -> None:
        key = (opened.rollout.rollout_id, opened.attempt_id)
        if key in self._open or key in self._closed:
            self.ignored_count += 1
            if key in self._open:
                self._opened_again[self._open[key].first_offset] = offset
            return
        before = self._opened_last.get(opened.rollout.rollout_id)
        if before is not None and before.attempt_sequence >= opened.attempt_sequence:
            del self._open[opened.rollout.rollout_id, before.attempt_id]
        rules = self._rules.with_those_of(opened.rollout.assembly, self._instead)
        self._open[key] = AttemptBuffer(opened, offset, rules)
        self._opened_last[opened.rollout.rollout_id] = opened

    def _take_open(self, key: AttemptKey, closed: AttemptClosed) -> AttemptBuffer | None:
        """The attempt that is closed, if it is open. With a rollout that is over goes what never began."""
        attempt = self._open.pop(key, None)
        last = self._opened_last.get(closed.rollout_id)
        if attempt is not None and last is not None and (closed.final or last.attempt_id == closed.attempt_id):
            del self._opened_last[closed.rollout_id]
            self._open.pop((closed.rollout_id, last.attempt_id), None)
        return attempt
