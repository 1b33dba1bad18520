"""What this store's workers do, told to others: what must be known at once, the rest now and then."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future

from lightstream.runtime.kafka import KafkaPublisher, Position
from lightstream.schemas.errors import LightstreamError
from lightstream.schemas.records import WorkerHeartbeat
from lightstream.schemas.topics import WORKERS

from .worker_records import WorkerRecords

__all__ = ["WorkerNews"]

logger = logging.getLogger(__name__)

INTERVAL_S = 0.5
"""How late others may learn what a worker does. Each store reads all of it, and nothing is decided by it."""


class WorkerNews:
    """Changes of workers, written in the order in which they were made. Thread-safe.

    Args:
        records: where each change is known at once, in this store.
    """

    def __init__(self, publisher: KafkaPublisher, records: WorkerRecords) -> None:
        self._publisher = publisher
        self._records = records
        self._lock = threading.Lock()
        self._untold: dict[str, WorkerHeartbeat] = {}
        self._told_s = 0.0

    def keep(self, worker_id: str, change: Callable[[WorkerHeartbeat | None], WorkerHeartbeat]) -> WorkerHeartbeat:
        """Change a worker; others hear of it with the next :meth:`tell`."""
        with self._lock:
            record = self._records.change(worker_id, change)
            self._untold[worker_id] = record
            return record

    def write(
        self, worker_id: str, change: Callable[[WorkerHeartbeat | None], WorkerHeartbeat]
    ) -> tuple[WorkerHeartbeat, Future[Position]]:
        """Change a worker and write it down; the future resolves when that is durable.

        Raises:
            LightstreamError: it cannot be written; the change is taken back.
        """
        with self._lock:
            record = self._records.change(worker_id, change)
            return record, self._write(record)

    def tell_in_turn(self) -> None:
        """As :meth:`tell`, if the last time is :data:`INTERVAL_S` ago."""
        now_s = time.monotonic()
        if now_s - self._told_s >= INTERVAL_S:
            self._told_s = now_s
            self.tell()

    def tell(self) -> None:
        """Write what workers did since the last call: of each the latest, as a busy one changes many times a second."""
        with self._lock:
            for worker_id, record in list(self._untold.items()):
                try:
                    self._write(record)
                except LightstreamError as error:
                    logger.warning("the activity of worker %s was not recorded: %s", worker_id, error)

    def _write(self, record: WorkerHeartbeat) -> Future[Position]:
        """Write what is the latest of a worker, under the lock: so that the log has it in the order of the changes."""
        self._untold.pop(record.worker_id, None)
        try:
            written = self._publisher.publish(WORKERS, record.worker_id, record)
        except LightstreamError:
            self._records.lost(record)
            raise
        written.add_done_callback(lambda done: self._wrote(record, done))
        return written

    def _wrote(self, record: WorkerHeartbeat, done: Future[Position]) -> None:
        error = done.exception()
        if error is None:
            self._records.written(record, done.result().offset)
        else:
            logger.warning("the activity of worker %s was not recorded: %s", record.worker_id, error)
            self._records.lost(record)
