"""Late spans of attempts that are not in memory: the log is read back, beside the stream of new records."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field

from lightstream.schemas.clock import NANOS_PER_SECOND
from lightstream.schemas.codec import Codec
from lightstream.schemas.errors import DecodeError
from lightstream.schemas.records import AttemptClosed, AttemptOpened, SpanRecord, Trajectory

from ..core.assembly import Assembler, AssemblyRules, AttemptKey, LateSpan
from .log_reader import LogReader

__all__ = ["LateSpanReader"]

ATTEMPTS_PER_PASS_MAX = 16
"""Read together, since late spans come in bursts; each takes at most ``trajectory_bytes_max`` of memory."""

FIRST_STEP_RECORDS = 10_000
"""How far the search for an attempt's opening goes back at first; twice as far each time."""

GAP_RECORDS_MAX = 1000
"""Between two records that are wanted: fewer are read over, since asking anew takes about as long."""

CLOCK_SKEW_S_MAX = 60.0
"""Between the clock that stamps records and the life cycle's."""

UNKNOWN_REMEMBERED_MAX = 10_000
"""Attempts that were looked for in vain, and need not be again."""

Send = Callable[[Sequence[Trajectory]], Awaitable[None]]


@dataclass(slots=True)
class _Search:
    """What is known of one attempt that is looked for.

    Attributes:
        opened_unix_nano: by its opening record, once that is found.
        offsets: of all records of its rollout, newest first by steps.
    """

    opened_unix_nano: int | None = None
    offsets: list[int] = field(default_factory=list[int])


class LateSpanReader:
    """Revises trajectories from the log, one pass after the other, in the order in which late spans came.

    Nothing is kept: what had not been sent when the process ended comes again, since :attr:`oldest` holds back what is
    committed.

    Args:
        log: the partition of ``spans``.
        send: makes trajectories durable.
    """

    def __init__(self, log: LogReader, codec: Codec, partition: int, rules: AssemblyRules, send: Send) -> None:
        self._log = log
        self._codec = codec
        self._partition = partition
        self._rules = rules
        self._send = send
        self._waiting: deque[LateSpan] = deque()
        self._in_hand: list[LateSpan] = []
        self._unknown: dict[AttemptKey, None] = {}
        self._stopped = threading.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def oldest(self) -> int | None:
        """Offset of the first late span that is not done; nothing from there on may be committed."""
        offsets = [late[0].offset for late in (self._in_hand, self._waiting) if late]
        return min(offsets, default=None)

    def add(self, late: Iterable[LateSpan]) -> None:
        """Take late spans, in log order. Those of attempts that were looked for in vain are left out."""
        self._waiting.extend(span for span in late if span.key not in self._unknown)
        if self._waiting and self._task is None:
            self._task = asyncio.create_task(self._run(), name=f"late-spans-{self._partition}")

    def check(self) -> None:
        """Raise what ended the work, if anything did.

        Raises:
            ServiceUnavailableError: the cluster does not answer.
            PublishError: a trajectory did not become durable.
        """
        if self._task is not None and self._task.done():
            task, self._task = self._task, None
            task.result()
            self.add(())

    def close(self) -> None:
        """Stop; what is not done stays in the log."""
        self._stopped.set()
        self._waiting.clear()
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        while self._waiting:
            keys: set[AttemptKey] = set()
            while self._waiting and (self._waiting[0].key in keys or len(keys) < ATTEMPTS_PER_PASS_MAX):
                late = self._waiting.popleft()
                self._in_hand.append(late)
                keys.add(late.key)
            await self._send(await asyncio.to_thread(self.read_back, self._in_hand))
            self._in_hand = []

    def read_back(self, late: Sequence[LateSpan]) -> list[Trajectory]:
        """The revisions up to these late spans; blocking.

        Raises:
            ServiceUnavailableError: the cluster does not answer.
        """
        newest = {span.key: span for span in late}
        offsets = [place for span in newest.values() for place in span.places or ()]
        offsets += self._search({key: span for key, span in newest.items() if span.places is None})
        rollouts = {key[0].encode() for key in newest}
        assembler = Assembler(self._partition, self._rules, held_spans_max=1 << 62, held_bytes_max=1 << 62)
        for record in self._log.ranges(_merged(offsets), self._stopped):
            if record.key not in rollouts:
                continue
            try:
                decoded = self._codec.decode(record.value)
            except DecodeError:
                continue  # a dead letter since it was first read
            if isinstance(decoded, SpanRecord | AttemptOpened | AttemptClosed):
                key = _key_of(decoded)
                if key in newest and record.offset <= newest[key].offset:
                    assembler.on_record(decoded, record.offset, record.logged_unix_nano)
        return assembler.take_revisions()

    def _search(self, wanted: dict[AttemptKey, LateSpan]) -> list[tuple[int, int]]:
        """Where the records of these attempts' rollouts lie, from their openings on. Reads backwards, step by step."""
        if not wanted:
            return []
        high = max(span.offset for span in wanted.values()) + 1
        earliest = min(span.logged_unix_nano for span in wanted.values())
        window_s = self._rules.late_span_s_max + CLOCK_SKEW_S_MAX
        low = self._log.first_logged_at(earliest - int(window_s * NANOS_PER_SECOND))
        searches = {key: _Search() for key in wanted}
        by_rollout: dict[bytes, list[_Search]] = {}
        for key, search in searches.items():
            by_rollout.setdefault(key[0].encode(), []).append(search)
        step = FIRST_STEP_RECORDS
        reached = high
        while reached > low and not self._stopped.is_set():
            begin = max(low, reached - step)
            for record in self._log.ranges([(begin, reached - 1)], self._stopped):
                for search in by_rollout.get(record.key or b"", ()):
                    search.offsets.append(record.offset)
                opened = self._opening(record.key, record.value, by_rollout)
                if opened is not None and (key := _key_of(opened)) in searches:
                    searches[key].opened_unix_nano = opened.opened_unix_nano
            reached, step = begin, step * 2
            if all(search.opened_unix_nano is not None for search in searches.values()):
                # An opening may be in the log twice, and the first counts: it was not logged before it was made.
                first = min(search.opened_unix_nano or 0 for search in searches.values())
                low = max(low, self._log.first_logged_at(first - int(CLOCK_SKEW_S_MAX * NANOS_PER_SECOND)))
        for key, search in searches.items():
            if search.opened_unix_nano is None and not self._stopped.is_set():
                self._remember_unknown(key)
        return [(offset, offset) for search in searches.values() for offset in search.offsets]

    def _opening(
        self, key: bytes | None, value: bytes | None, by_rollout: dict[bytes, list[_Search]]
    ) -> AttemptOpened | None:
        if key not in by_rollout:
            return None
        try:
            decoded = self._codec.decode(value)
        except DecodeError:
            return None
        return decoded if isinstance(decoded, AttemptOpened) else None

    def _remember_unknown(self, key: AttemptKey) -> None:
        self._unknown[key] = None
        if len(self._unknown) > UNKNOWN_REMEMBERED_MAX:
            del self._unknown[next(iter(self._unknown))]


def _key_of(record: SpanRecord | AttemptOpened | AttemptClosed) -> AttemptKey:
    if isinstance(record, AttemptOpened):
        return record.rollout.rollout_id, record.attempt_id
    return record.rollout_id or "", record.attempt_id or ""


def _merged(places: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same offsets in ascending ranges (both ends inclusive), with small gaps filled."""
    merged: list[tuple[int, int]] = []
    for first, last in sorted(places):
        if merged and first - merged[-1][1] <= GAP_RECORDS_MAX:
            merged[-1] = (merged[-1][0], max(merged[-1][1], last))
        else:
            merged.append((first, last))
    return merged
