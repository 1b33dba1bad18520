"""Keeps the DuckDB file in step with the log: one thread reads and decodes, one writes.

Invariants:

- A transaction appends a batch's rows and stores the offsets after it. So after any crash each record is in the file
  once.
- A record that cannot be decoded becomes a dead letter, which is in Kafka before the offsets pass the record. One of a
  newer version is kept in the file until a version that can read it comes.
- At most three batches are in memory: one that is being decoded, one that waits, one that is being written.
- A broker that is away, a full disk and a short memory are waited for; any other error ends the materialiser, and
  ``failure`` says why.
"""

from __future__ import annotations

import logging
import math
import queue
import re
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import duckdb

from lightstream.runtime.clock import Clock, SystemClock
from lightstream.runtime.deletions import Deletions
from lightstream.runtime.disk import DiskRoom
from lightstream.runtime.kafka import KafkaContact, KafkaPublisher, unread_reason
from lightstream.runtime.schema_registry import codec_for
from lightstream.runtime.settings import Settings
from lightstream.schemas.codec import Codec
from lightstream.schemas.distribution import installed_version
from lightstream.schemas.errors import PublishError, RecordRefusedError
from lightstream.schemas.records import DeadLetter
from lightstream.schemas.topics import DEAD_LETTERS

from ..prices import prices_path
from ..tables.kept import UNREAD_RECORDS
from .batch import Batch, BatchBuilder
from .batch_reader import GROUP_ID, BatchReader
from .catch_up import CatchUp, Progress
from .cluster import end_offsets, topic_ids
from .database import ViewDatabase, tables_fingerprint
from .metrics import ROWS, TRANSACTION_PROCESSOR_SECONDS, TRANSACTION_SECONDS
from .positions import Place, Positions
from .prices_table import PricesTable
from .retention import Retention, delete_old_rows

logger = logging.getLogger(__name__)

HAND_OVER_POLL_S = 0.1
ROOM_POLL_S = 0.5
DEAD_LETTER_RETRY_PAUSE_S = 1.0
MEMORY_RETRY_PAUSE_S = 0.1
MEMORY_PATIENCE_S = 60.0
"""Twice what a statement may take by default. Then the process ends, and with it what holds the memory."""

INTERVAL_S = 1.0
"""From one transaction to the next when nobody looks: one costs 8 to 20 ms of processor, which at four a second was a
fifth of all that a small run's machine did."""
WATCHED_SHARE_MAX = 0.2
"""Share of a core that transactions may cost while somebody looks: they are the rarer the longer one takes."""
APPENDS_AVERAGED = 10

READ_LATER_RECORDS = 200
"""Records that were kept for this version are read so many in a transaction; each may be of tens of megabytes."""

STUCK_S = 30.0
"""A thread that has made no pass for so long is told. A full batch takes the writer 10 s on a slow machine."""


def default_path(settings: Settings) -> Path:
    """Return the path of the view's file. Its name says which tables it has, so files of other versions stay."""
    return settings.data_dir / "view" / f"lightstream-{tables_fingerprint()}.duckdb"


def files_of_other_versions(path: Path) -> list[Path]:
    """The files beside this one that other versions of Lightstream have made, of the same view."""
    name = path.name.removesuffix(f"-{tables_fingerprint()}.duckdb")
    if name == path.name:
        return []
    of_view = re.compile(re.escape(name) + r"(-[0-9a-f]{16})?\.duckdb")
    return sorted(file for file in path.parent.glob("*.duckdb") if of_view.fullmatch(file.name) and file != path)


def transaction_interval_s(cost_s: float, *, is_watched: bool) -> float:
    """Return the seconds from one transaction to the next where nobody waits for it.

    Args:
        cost_s: processor time of one.
        is_watched: whether somebody looks: then they come as often as costs a share of a core, yet never more rarely
            than where nobody does.
    """
    return min(INTERVAL_S, cost_s / WATCHED_SHARE_MAX) if is_watched else INTERVAL_S


class Materialiser:
    """Owns the view's file from :meth:`start` to :meth:`stop`.

    A broker that goes away is waited for, and so is room on the disk. Anything else that keeps the log from being
    followed (a disk that somebody else filled within a transaction) ends the materialiser: ``failure`` says what,
    ``on_failure`` is called, waiters are woken, and rows and offsets still agree.

    Args:
        path: the file; ``None`` for the one in the data folder.
        patience_s: how long :meth:`start` waits for Kafka.
    """

    def __init__(
        self,
        settings: Settings,
        path: Path | None = None,
        *,
        codec: Codec | None = None,
        clock: Clock | None = None,
        patience_s: float | None = None,
        on_failure: Callable[[], None] | None = None,
    ) -> None:
        self._settings = settings
        self._path = path or default_path(settings)
        self._codec = codec or codec_for(settings)
        self._clock = clock or SystemClock()
        self._patience_s = settings.publish_timeout_s if patience_s is None else patience_s
        self._on_failure = on_failure
        self._stopping = threading.Event()
        self._batches: queue.Queue[Batch] = queue.Queue(maxsize=1)
        self._publisher: KafkaPublisher | None = None
        self._threads: list[threading.Thread] = []
        self._catch_up = CatchUp({}, {})
        self._append_cost_s = 0.0
        self._retention = Retention.of(settings)
        self._next_retention_s = 0.0 if self._retention.interval_s else None
        self._passed_s: dict[str, float] = dict.fromkeys(("reader", "writer"), math.inf)
        self.kafka = KafkaContact(settings)
        self.room = DiskRoom(settings, self._path.parent, name="view")
        self.positions = Positions()
        self.failure: Exception | None = None
        self.unread: dict[str, int] = {}
        """Version of Lightstream -> how many records are kept that only it can read."""

    def start(self) -> None:
        """Open the file and begin to follow the log.

        Raises:
            ServiceUnavailableError: Kafka does not answer, or another process owns the file.
        """
        origin = {"topic prefix": self._settings.topic_prefix}
        origin |= topic_ids(self._settings, patience_s=self._patience_s)
        self.database = ViewDatabase(self._path, origin, memory_bytes_max=self._settings.view_memory_bytes_max)
        if others := files_of_other_versions(self._path):
            logger.info(
                "%s is the view of version %s. Files of other versions are left as they are, for a way back; "
                "delete what you do not go back to: %s",
                self._path,
                installed_version(),
                ", ".join(map(str, others)),
            )
        deletions = self._read_deletions()
        self._read_kept(deletions)
        self._prices = PricesTable(prices_path(self._settings))
        self._prices.follow(self.database)
        self.positions = Positions(self.database.next_offsets())
        self._reader = BatchReader(
            self._settings,
            self._codec,
            self._clock,
            self.positions.snapshot(),
            self._interval_s,
            self.positions.awaits,
            partial(self._passed, "reader"),
            deletions,
        )
        self._catch_up = CatchUp(self.positions.snapshot(), self.end_offsets_now())
        for name, work in (("reader", self._read), ("writer", self._write)):
            self._passed(name)
            thread = threading.Thread(target=self._guarded, args=(work,), name=f"lightstream-view-{name}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _read_deletions(self) -> Deletions:
        """All deletions of runs in the log, so that what they cover is not even read from its file."""
        deletions = Deletions()
        deletions.read(self._settings, self._codec, group_id=GROUP_ID)
        return deletions

    def _read_kept(self, deletions: Deletions) -> None:
        """Read what a version before this one has kept, because it could not."""
        database = self.database
        while kept := database.unread_of(self._codec.knows, READ_LATER_RECORDS):
            builder = BatchBuilder(self._codec, self._clock, self._settings, deletions)
            for _, logged in kept:
                builder.add_logged(logged)
            batch = builder.build()
            if not self._report(batch.dead_letters):
                return
            database.append(batch.tables, {}, now_read=[row for row, _ in kept])
            logger.info("%d records that another version wrote can be read now", len(kept))
        self.unread = database.unread()

    def wait_until_shown(self, timeout_s: float) -> None:
        """Block until all that a process before this one has shown is there again: no reader sees time run back.

        It is not if that process was killed: what came after the last checkpoint is read from the log again. Gives up
        after ``timeout_s`` seconds, if the log itself has lost records, say.
        """
        if missing := self.positions.wait_for(self.database.shown, timeout_s):
            logger.warning("readers have seen more than the log has now: %s (wanted, reached)", missing)

    def stop(self) -> None:
        """Finish the transaction under way, close the file. Safe to call twice."""
        self._stopping.set()
        for thread in self._threads:
            thread.join()
        if self._threads:
            self._threads = []
            self._reader.close()
            self.database.close()
        if self._publisher is not None:
            self._publisher.close()
        self.positions.close("the view was stopped")

    def end_offsets(self) -> dict[Place, int]:
        """Place -> end of the partition as last heard; asks nobody."""
        return self._reader.end_offsets()

    def end_offsets_now(self) -> dict[Place, int]:
        """Place -> end of the partition, asked now.

        Raises:
            ServiceUnavailableError: the cluster does not answer.
        """
        return end_offsets(self.kafka, self._settings, self._reader.places())

    def silent_s(self) -> float | None:
        """As :meth:`KafkaContact.silent_s`."""
        return self.kafka.silent_s()

    def fetched(self) -> dict[Place, int]:
        """Place -> next offset to be fetched: records below are reflected, or on their way."""
        return self._reader.fetched()

    def _interval_s(self) -> float:
        """Seconds from one transaction to the next where nobody waits for it."""
        return transaction_interval_s(self._append_cost_s, is_watched=self.positions.is_watched)

    @property
    def rebuilding(self) -> Progress | None:
        """Progress towards where the log ended at the start; ``None`` once that is reached, from then on."""
        return self._catch_up.progress

    def unready(self) -> str | None:
        """Say why answers are out of date: it failed, is stuck, rebuilds, lags, or has kept unreadable records."""
        if self.failure is not None:
            return f"the view has stopped: {self.failure}"
        if (shortage := self.room()) is not None:
            return f"the view adds no rows: {shortage}"
        now_s = time.monotonic()
        for name, passed_s in self._passed_s.items():
            if now_s - passed_s > STUCK_S:
                return f"the view's {name} is stuck: it has done nothing for {now_s - passed_s:.0f} s"
        if (progress := self.rebuilding) is not None:
            return f"the view is rebuilding: {progress}"
        reached, lag_max = self.positions.snapshot(), self._settings.ready_lag_records_max
        lag = sum(max(0, end - reached.get(place, 0)) for place, end in self.end_offsets().items())
        if lag > lag_max:
            return f"the view is {lag:,} records behind the log (over {lag_max:,})"
        return unread_reason(self.unread)

    def _passed(self, thread: str) -> None:
        """Note that a thread is not stuck."""
        self._passed_s[thread] = time.monotonic()

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # told, and ends the materialiser: nobody else hears of this thread
            logger.exception("the view stops: %s", error)
            self.failure = self.failure or error
            self._stopping.set()
            self.positions.close(f"the view failed: {error}")
            if self._on_failure is not None:
                self._on_failure()

    def _read(self) -> None:
        while (batch := self._reader.collect(self._stopping)) is not None:
            while not self._stopping.is_set():
                self._passed("reader")  # a writer that is stuck is told as such
                try:
                    self._batches.put(batch, timeout=HAND_OVER_POLL_S)
                    break
                except queue.Full:
                    continue

    def _write(self) -> None:
        while not self._stopping.is_set():
            self._passed("writer")
            self._prices.follow(self.database)
            try:
                batch = self._batches.get(timeout=HAND_OVER_POLL_S)
            except queue.Empty:
                if self.room() is None:
                    self._remove_old_rows()
                    self.database.checkpoint_if_due()
                self._compact()
                continue
            if not self._wait_for_room() or not self._report(batch.dead_letters):
                return
            if batch.record_count:
                began_s = time.thread_time()
                self._append(batch)
                if UNREAD_RECORDS.name in batch.tables:
                    self.unread = self.database.unread()
                ROWS.inc(sum(map(len, batch.tables.values())))
                cost_s = time.thread_time() - began_s
                TRANSACTION_PROCESSOR_SECONDS.inc(cost_s)
                self._append_cost_s += (cost_s - self._append_cost_s) / APPENDS_AVERAGED
            self._catch_up.advance(batch.next_offsets)
            self.positions.advance(batch.next_offsets)
            self._remove_old_rows()  # after those who waited were told
            self.database.checkpoint_if_due()
            self._compact()

    def _remove_old_rows(self) -> None:
        """Have rows leave that are older than they are kept, some at a time, once all of the log is in the file."""
        now_s = time.monotonic()
        if self._next_retention_s is None or now_s < self._next_retention_s:
            return
        if self.rebuilding is not None or self.database.is_compacting:  # whose copy would be in vain
            return
        now_unix_nano = self._clock.now_unix_nano()
        try:
            deleted_rows = self.database.remove(lambda it: delete_old_rows(it, self._retention, now_unix_nano))
        except duckdb.OutOfMemoryException as error:
            logger.warning("statements have taken the memory, so old rows stay for now: %.200s", error)
            deleted_rows = 0
        if not deleted_rows:
            self._next_retention_s = now_s + (self._retention.interval_s or 0.0)

    def _compact(self) -> None:
        """Keep the file small, once all of the log is in it and while the disk has room."""
        if self.rebuilding is not None:
            return
        try:
            free_bytes = self.room.free_bytes() - self._settings.disk_free_bytes_min
        except OSError:
            free_bytes = 0  # `room` says so
        self.database.compact_if_due(free_bytes)

    def _wait_for_room(self) -> bool:
        """Wait for room on the disk, a pause that does not count as being stuck; false when stopped before."""
        if (reason := self.room()) is None:
            return True
        logger.warning("rows wait: %s", reason)
        while self.room() is not None:
            self._passed("writer")
            if self._stopping.wait(ROOM_POLL_S):
                return False
        logger.warning("the disk has room, rows are added again")
        return True

    def _append(self, batch: Batch) -> None:
        """One transaction, made again where statements have taken all memory and spill space: they end before long.

        Raises:
            duckdb.Error: the disk is full, say, or there was no memory for a minute; nothing was added.
        """
        give_up_s = time.monotonic() + MEMORY_PATIENCE_S
        while True:
            try:
                with TRANSACTION_SECONDS.time():
                    self.database.append(batch.tables, batch.next_offsets)
                return
            except duckdb.OutOfMemoryException as error:
                if time.monotonic() > give_up_s or self._stopping.is_set():
                    raise
                logger.warning("statements have taken the memory, so rows wait: %.200s", error)
            self._stopping.wait(MEMORY_RETRY_PAUSE_S)

    def _report(self, letters: list[DeadLetter]) -> bool:
        """Make dead letters durable before the offsets move past their origin; false when stopped before."""
        while letters:
            publisher = self._publisher = self._publisher or KafkaPublisher(self._settings, codec=self._codec)
            sent = [(letter, publisher.publish(DEAD_LETTERS, _key(letter), letter)) for letter in letters]
            for letter, future in sent:
                if isinstance(refusal := future.exception(), RecordRefusedError):  # the log still has its origin
                    logger.error("no dead letter of %s (%s): %s", _key(letter), letter.detail, refusal)
            letters = [letter for letter, future in sent if _may_succeed(future.exception())]
            if letters and self._stopping.wait(DEAD_LETTER_RETRY_PAUSE_S):
                return False
        return True


def _may_succeed(error: BaseException | None) -> bool:
    """Whether what failed is worth another try."""
    return isinstance(error, PublishError) and not isinstance(error, RecordRefusedError)


def _key(letter: DeadLetter) -> str:
    return f"{letter.origin_topic}-{letter.origin_partition}-{letter.origin_offset}"
