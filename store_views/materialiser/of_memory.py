"""A view of a store in memory, for its dashboard: the tables that the log has, in a file that is deleted at the end."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import duckdb

from lightstream.runtime.clock import Clock, SystemClock
from lightstream.schemas.records import Record
from lightstream.schemas.topics import TOPICS
from lightstream.schemas.types import Span

from ..stores.kafka.span_record import span_record
from .arrow_rows import LoggedRecord
from .batch import RowBuilder
from .database import ViewDatabase
from .positions import Place, Positions

if TYPE_CHECKING:
    from ..stores.memory import InMemoryLightningStore

logger = logging.getLogger(__name__)

BATCH_RECORDS_MAX = 5_000

_TOPIC_OF: dict[type[Record], str] = {record: topic.name for topic in TOPICS for record in topic.records}


class MemoryMaterialiser:
    """Follows a store in memory as :class:`Materialiser` follows the log: it is a :class:`ViewSource`.

    A record's offset is its number in the topic that it would be in, in partition 0. Trajectories, which a worker makes
    from the log, and training steps have no rows.

    From :meth:`start` to :meth:`stop`, what the store keeps is also on disk. An error (a full disk) ends it:
    ``failure`` says which, and the store goes on.
    """

    rebuilding = None

    def __init__(self, store: InMemoryLightningStore, *, clock: Clock | None = None) -> None:
        self._store = store
        self._clock = clock or SystemClock()
        self._received: dict[Place, int] = {}
        self._queue: SimpleQueue[LoggedRecord | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self.positions = Positions()
        self.failure: Exception | None = None

    def start(self) -> None:
        """Make the tables and begin to follow; returns when all that the store has is in them. Safe to call twice.

        Raises:
            ServiceUnavailableError: the file cannot be made, or the store was closed.
        """
        with self._lock:
            if self._thread is not None:
                return
            self._folder = TemporaryDirectory(prefix="lightstream-view-")
            self.database = ViewDatabase(Path(self._folder.name) / "view.duckdb", {})
            self._thread = threading.Thread(target=self._guarded, name="lightstream-memory-view", daemon=True)
            self._store.follow(self._take)
            self._thread.start()
            self.positions.wait_for(self.fetched(), timeout_s=threading.TIMEOUT_MAX)

    def stop(self) -> None:
        """Stop following, and delete the file. Safe to call twice."""
        with self._lock:
            if self._thread is None:
                return
            self._store.unfollow(self._take)
            self._queue.put(None)
            self._thread.join()
            self._thread = None
            self.database.close()
            self._folder.cleanup()
            self.positions.close("the store's server was stopped")

    def end_offsets(self) -> dict[Place, int]:
        """Place -> number of records that the store has kept."""
        return dict(self._received)

    end_offsets_now = end_offsets
    fetched = end_offsets

    def silent_s(self) -> float:
        """Return 0: there is nothing to wait for."""
        return 0.0

    def _take(self, kept: Record | Span) -> None:
        """Note what the store keeps, in its thread."""
        record = span_record(kept) if isinstance(kept, Span) else kept
        place = _TOPIC_OF[type(record)], 0
        offset = self._received.get(place, 0)
        self._queue.put(LoggedRecord(record, 0, offset, self._clock.now_unix_nano()))
        self._received[place] = offset + 1

    def _guarded(self) -> None:
        try:
            self._write()
        except (duckdb.Error, OSError) as error:
            logger.warning("the dashboard of the store in memory stops: %s", error)
            self.failure = error
            self.positions.close(f"the view failed: {error}")

    def _write(self) -> None:
        while (first := self._queue.get()) is not None:
            rows, reached = RowBuilder(), dict[Place, int]()
            for logged in self._waiting(first):
                rows.add(logged)
                reached[_TOPIC_OF[type(logged.record)], 0] = logged.offset + 1
            self.database.append(rows.build(), reached)
            self.positions.advance(reached)
            self.database.checkpoint_if_due()

    def _waiting(self, first: LoggedRecord) -> Iterator[LoggedRecord]:
        """Yield ``first`` and what waits behind it, up to a batch."""
        yield first
        with suppress(Empty):
            for _ in range(BATCH_RECORDS_MAX - 1):
                if (logged := self._queue.get_nowait()) is None:
                    self._queue.put(None)  # the end, seen again by the caller
                    return
                yield logged
