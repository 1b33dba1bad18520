"""The topic ``workers``, read and written. It has one partition, so "older" is a matter of offsets."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import NamedTuple

from lightstream.runtime.kafka import Position, Publisher
from lightstream.schemas.errors import LightstreamError
from lightstream.schemas.records import WorkerHeartbeat
from lightstream.schemas.topics import WORKERS

from ..log import NextWorker

logger = logging.getLogger(__name__)

FLUSH_INTERVAL_S = 0.5
"""Others learn so late what a worker does. Each store reads all of it, and nothing is decided by it."""

ON_ITS_WAY = math.inf
"""Offset of a record that was made here and is not in the log yet: all that the log tells before it is older."""

NOWHERE = -1
"""Offset of a record that may never get into the log: whatever the log tells is newer."""


class _Known(NamedTuple):
    offset: float
    record: WorkerHeartbeat
    former: _Known | None = None


class WorkerRegistry:
    """Workers as read from the log, and as changed here before the change was read. Belongs to one event loop.

    Each change is made to the last one, be it in the log or on its way there, so none undoes another. Changes are
    written in the order in which they were made.

    Args:
        post: calls something in the loop, from any thread.
    """

    def __init__(self, publisher: Publisher, post: Callable[[Callable[[], None]], None]) -> None:
        self._publisher = publisher
        self._post = post
        self._known: dict[str, _Known] = {}
        self._unwritten: dict[str, WorkerHeartbeat] = {}

    def get(self, worker_id: str) -> WorkerHeartbeat | None:
        """A worker as it is known."""
        known = self._known.get(worker_id)
        return None if known is None else known.record

    def all(self) -> list[WorkerHeartbeat]:
        """All workers, in the order in which they were first heard of."""
        return [known.record for known in self._known.values()]

    def read(self, record: WorkerHeartbeat, offset: int) -> None:
        """The record at ``offset`` of the log."""
        known = self._known.get(record.worker_id)
        if known is None or known.offset <= offset:
            self._known[record.worker_id] = _Known(offset, record)

    def change(self, worker_id: str, make: NextWorker) -> WorkerHeartbeat:
        """Change a worker; the log has it with the next :meth:`flush`."""
        record = self._changed(worker_id, make)
        self._unwritten[worker_id] = record
        return record

    def write(self, worker_id: str, make: NextWorker) -> tuple[WorkerHeartbeat, Future[Position]]:
        """Change a worker and write it; the future resolves when that is durable.

        Raises:
            LightstreamError: it cannot be written; the change is taken back.
        """
        record = self._changed(worker_id, make)
        return record, self._write(record)

    def flush(self) -> None:
        """Write changes since the last call. Busy workers change many times a second: of each the latest."""
        for worker_id, record in list(self._unwritten.items()):
            try:
                self._write(record)
            except LightstreamError as error:
                logger.warning("the activity of worker %s was not recorded: %s", worker_id, error)

    def _changed(self, worker_id: str, make: NextWorker) -> WorkerHeartbeat:
        former = self._known.get(worker_id)
        record = make(None if former is None else former.record)
        if former is not None and former.former is not None:
            former = _Known(former.offset, former.record)
        self._known[worker_id] = _Known(ON_ITS_WAY, record, former)
        return record

    def _write(self, record: WorkerHeartbeat) -> Future[Position]:
        self._unwritten.pop(record.worker_id, None)
        try:
            written = self._publisher.publish(WORKERS, record.worker_id, record)
        except LightstreamError:
            self._lost(record)
            raise
        written.add_done_callback(lambda done: self._post(partial(self._on_written, record, done)))
        return written

    def _on_written(self, record: WorkerHeartbeat, done: Future[Position]) -> None:
        error = done.exception()
        if error is not None:
            logger.warning("the activity of worker %s was not recorded: %s", record.worker_id, error)
            self._lost(record)
        elif (known := self._known.get(record.worker_id)) is not None and known.record is record:
            self._known[record.worker_id] = _Known(done.result().offset, record)

    def _lost(self, record: WorkerHeartbeat) -> None:
        """A changed record will not be in the log: what was before it holds, unless it was changed again."""
        known = self._known.get(record.worker_id)
        if known is None or known.record is not record:
            return
        if known.former is None:
            del self._known[record.worker_id]
        else:
            at = known.former.offset
            self._known[record.worker_id] = _Known(NOWHERE if at == ON_ITS_WAY else at, known.former.record)
