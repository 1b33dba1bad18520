"""Deferred assembly: large attempts, and late spans of attempts not in memory, alongside the stream of records.

What is not done when the process ends is read again: ``oldest`` holds back what is committed.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from array import array
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from lightstream.runtime.clock import NANOS_PER_SECOND
from lightstream.runtime.kafka import joined_ranges
from lightstream.runtime.logs import logged_ids_of
from lightstream.schemas.codec import Codec
from lightstream.schemas.errors import DecodeError, NewerWriterError
from lightstream.schemas.records import AttemptClosed, AttemptOpened, SpanRecord, Trajectory

from ..core.assembly import KEEP_ALL, Assembler, AssemblyRules, AttemptKey, DeferredAssembly, LateSpan
from .inbox import LogRecord
from .log_reader import LogReader
from .unread import UnreadRecords

logger = logging.getLogger(__name__)

LARGE_WAITING_MAX = 8
"""Large attempts whose buffers wait for their assembly; with more, their partition waits."""

ATTEMPTS_WAITING_MAX = 100_000
"""About 50 MB. Late spans of others are left out until one comes again; the view reports them as ``late``."""

ATTEMPTS_PER_PASS_MAX = 16
"""Read together, since late spans come in bursts; each takes at most ``trajectory_bytes_max`` of memory."""

FIRST_STEP_RECORDS = 10_000
"""The search for an attempt's opening goes back this far at first, and twice as far each time."""

CLOCK_SKEW_S_MAX = 60.0
"""Between the clock that stamps records and the life cycle's."""

UNKNOWN_REMEMBERED_MAX = 10_000
"""Attempts that were searched for in vain, and need not be again."""

Finish = Callable[[DeferredAssembly, LogRecord], Awaitable[None]]
Send = Callable[[Sequence[Trajectory]], Awaitable[None]]


class _SideTask:
    """A task that runs while there is work. Not thread-safe."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._task: asyncio.Task[None] | None = None

    def check(self) -> None:
        """Raise what ended the work, if anything did.

        Raises:
            ServiceUnavailableError: the cluster does not answer.
            PublishError: a trajectory did not become durable.
        """
        if self._task is not None and self._task.done():
            self._task.result()

    def close(self) -> None:
        """Stop; what is not done stays in the log."""
        if self._task is not None:
            self._task.cancel()

    def _ensure_running(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name=self._name)

    async def _run(self) -> None:
        await self._work()
        self._task = None

    async def _work(self) -> None:
        raise NotImplementedError


class LargeAttempts(_SideTask):
    """Assembles large attempts that have closed, one after the other, in the order in which they closed.

    Args:
        finish: makes the trajectory of an attempt durable; is given its closing record too.
    """

    def __init__(self, finish: Finish) -> None:
        super().__init__("large-attempts")
        self._finish = finish
        self._waiting: deque[tuple[DeferredAssembly, LogRecord]] = deque()
        self._one_done = asyncio.Event()

    @property
    def oldest(self) -> int | None:
        """Offset of the first opening that is not done; nothing from there on may be committed."""
        return min((attempt.first_offset for attempt, _ in self._waiting), default=None)

    async def add(self, attempt: DeferredAssembly, record: LogRecord) -> None:
        """Take an attempt; waits where :data:`LARGE_WAITING_MAX` are not done.

        Args:
            record: its closing record.
        """
        await self._fewer_than(LARGE_WAITING_MAX)
        self._waiting.append((attempt, record))
        self._ensure_running()

    async def all_done(self) -> None:
        """Wait until the trajectories of all are durable."""
        await self._fewer_than(1)

    async def _fewer_than(self, count: int) -> None:
        while len(self._waiting) >= count:
            self._one_done.clear()
            await self._one_done.wait()

    async def _work(self) -> None:
        while self._waiting:
            await self._finish(*self._waiting[0])
            self._waiting.popleft()
            self._one_done.set()


@dataclass(slots=True)
class _Late:
    """An attempt's first and newest late spans."""

    first: LateSpan
    newest: LateSpan


class LateSpanReader(_SideTask):
    """Revises trajectories from the log, one pass after the other, in the order in which late spans came.

    Attributes:
        refused_count: spans that were left out, since those of too many attempts waited.

    Args:
        spans_log: the partition of ``spans``.
        send: makes trajectories durable.
        unread: is told of rollouts of which something can only be read by another version. They are not revised, since
            calls that were in their trajectories would go: their late spans wait for that version.
    """

    def __init__(
        self,
        spans_log: LogReader,
        codec: Codec,
        partition: int,
        rules: AssemblyRules,
        send: Send,
        unread: UnreadRecords | None = None,
    ) -> None:
        super().__init__(f"late-spans-{partition}")
        self._spans_log = spans_log
        self._codec = codec
        self._partition = partition
        self._rules = rules
        self._send = send
        self._unread = UnreadRecords() if unread is None else unread
        self._newer: dict[bytes | None, NewerWriterError] = {}  # rollout -> why it cannot be read back
        self._waiting: dict[AttemptKey, _Late] = {}  # in the order of their first spans, as are those in progress
        self._in_progress: deque[_Late] = deque()
        self._unknown: dict[AttemptKey, None] = {}
        self._stopped = threading.Event()
        self.refused_count = 0

    @property
    def oldest(self) -> int | None:
        """Offset of the first late span that is not done; nothing from there on may be committed."""
        for late in self._in_progress or self._waiting.values():
            return late.first.offset
        return None

    def add(self, late: Iterable[LateSpan]) -> None:
        """Take late spans, in log order. Those of attempts that were looked for in vain are left out."""
        for span in late:
            if span.key in self._unknown:
                continue
            waiting = self._waiting.get(span.key)
            if waiting is not None:
                waiting.newest = span
            elif len(self._waiting) < ATTEMPTS_WAITING_MAX:
                self._waiting[span.key] = _Late(span, span)
            else:
                self.refused_count += 1
        if self._waiting:
            self._ensure_running()

    def close(self) -> None:
        self._stopped.set()
        self._waiting.clear()
        super().close()

    async def _work(self) -> None:
        while self._waiting:
            waiting, self._waiting = self._waiting, {}
            self._in_progress = deque(waiting.values())
            await self._locate([late for late in self._in_progress if late.newest.ranges is None])
            while self._in_progress:
                spans = [late.newest for late in islice(self._in_progress, ATTEMPTS_PER_PASS_MAX)]
                await self._send(await asyncio.to_thread(self.read_back, spans))
                for _ in spans:
                    self._hold(self._in_progress[0])  # before that lets go of its offset
                    self._in_progress.popleft()

    async def _locate(self, sought: Sequence[_Late]) -> None:
        """Locate these of the attempts in progress, all in one search; those that are nowhere are let go."""
        if not sought:
            return
        logged_unix_nano = min(late.first.logged_unix_nano for late in sought)
        ranges = await asyncio.to_thread(self.search, [late.newest for late in sought], logged_unix_nano)
        for late in sought:
            key = late.newest.key
            late.newest = replace(late.newest, ranges=ranges.get(key))
            if key not in ranges:
                if not self._hold(late):
                    self._remember_unknown(key)
                self._waiting.pop(key, None)
        self._in_progress = deque(late for late in self._in_progress if late.newest.ranges is not None)

    def _hold(self, late: _Late) -> bool:
        """Have the late spans wait for another version, if their rollout needs that."""
        rollout = late.newest.key[0].encode()
        if (error := self._newer.get(rollout)) is None:
            return False
        self._unread.hold(rollout, late.first.offset, error)
        return True

    def read_back(self, late: Sequence[LateSpan]) -> list[Trajectory]:
        """The revisions up to these late spans, whose ranges are known; blocking.

        Rollouts of which something can only be read by another version have none.

        Raises:
            ServiceUnavailableError: the cluster does not answer.
        """
        newest = {span.key: span for span in late}
        rollouts = {key[0].encode() for key in newest}
        assembler = Assembler(self._partition, self._rules, kept_spans_max=KEEP_ALL, kept_bytes_max=KEEP_ALL)
        ranges = joined_ranges(each for span in newest.values() for each in span.ranges or ())
        for record in self._spans_log.ranges(ranges, self._stopped):
            if record.key not in rollouts:
                continue
            try:
                decoded = self._codec.decode(record.value, record.writer)
            except NewerWriterError as error:
                self._newer[record.key] = error
                continue
            except DecodeError:
                continue  # a dead letter since it was first read
            if isinstance(decoded, SpanRecord | AttemptOpened | AttemptClosed):
                key = _key_of(decoded)
                if key in newest and record.offset <= newest[key].offset:
                    try:
                        assembler.on_record(decoded, record.offset, record.logged_unix_nano)
                    except Exception:  # as where it was first read: one span must not stop all others forever
                        with logged_ids_of(decoded):
                            logger.exception("offset %d of partition %d is left out", record.offset, self._partition)
        revised = assembler.take_revised()
        return revisions_of(each for each in revised if each.rollout_id.encode() not in self._newer)

    def search(self, late: Sequence[LateSpan], logged_unix_nano: int) -> dict[AttemptKey, tuple[tuple[int, int], ...]]:
        """The ranges of offsets of these spans' rollouts, by each attempt whose opening is found; blocking.

        Reads the log backwards, step by step.

        Args:
            logged_unix_nano: when the first late span of any of the attempts was logged.

        Raises:
            ServiceUnavailableError: the cluster does not answer.
        """
        wanted = {span.key for span in late}
        reached = max(span.offset for span in late) + 1
        window_s = self._rules.late_span_s_max + CLOCK_SKEW_S_MAX
        low = self._spans_log.first_logged_at(logged_unix_nano - int(window_s * NANOS_PER_SECOND))
        opened: dict[AttemptKey, int] = {}
        offsets = {rollout_id.encode(): array("q") for rollout_id, _ in wanted}
        step = FIRST_STEP_RECORDS
        while reached > low and not self._stopped.is_set():
            begin = max(low, reached - step)
            for record in self._spans_log.ranges([(begin, reached - 1)], self._stopped):
                of_rollout = offsets.get(record.key or b"")
                if of_rollout is None:
                    continue
                of_rollout.append(record.offset)
                opening = self._opening(record)
                if opening is not None and (key := _key_of(opening)) in wanted:
                    opened[key] = opening.opened_unix_nano
            reached, step = begin, step * 2
            if len(opened) == len(wanted):
                # An opening may be in the log twice, and the first counts: it was not logged before it was made.
                first = min(opened.values())
                low = max(low, self._spans_log.first_logged_at(first - int(CLOCK_SKEW_S_MAX * NANOS_PER_SECOND)))
        return {key: tuple(joined_ranges((offset, offset) for offset in offsets[key[0].encode()])) for key in opened}

    def _opening(self, record: LogRecord) -> AttemptOpened | None:
        try:
            decoded = self._codec.decode(record.value, record.writer)
        except NewerWriterError as error:
            self._newer[record.key] = error
            return None
        except DecodeError:
            return None
        return decoded if isinstance(decoded, AttemptOpened) else None

    def _remember_unknown(self, key: AttemptKey) -> None:
        self._unknown[key] = None
        if len(self._unknown) > UNKNOWN_REMEMBERED_MAX:
            del self._unknown[next(iter(self._unknown))]


def revisions_of(revised: Iterable[DeferredAssembly]) -> list[Trajectory]:
    """The trajectories of revised attempts. Where one cannot be made, the view reports the spans as ``late``."""
    made: list[Trajectory] = []
    for attempt in revised:
        try:
            made.append(attempt.trajectory())
        except Exception:  # one attempt must not stop all others forever
            with logged_ids_of(attempt):
                logger.exception("no revision of %s", attempt.attempt_id)
    return made


def _key_of(record: SpanRecord | AttemptOpened | AttemptClosed) -> AttemptKey:
    if isinstance(record, AttemptOpened):
        return record.rollout.rollout_id, record.attempt_id
    return record.rollout_id or "", record.attempt_id or ""
