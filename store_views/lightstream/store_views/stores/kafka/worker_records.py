"""What is known of the topic ``workers``. One partition, so "older" is a matter of offsets."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import NamedTuple

from lightstream.schemas.records import WorkerHeartbeat

__all__ = ["WorkerRecords"]

ON_ITS_WAY = math.inf
"""Offset of a record that was made here and is not in the log yet: all that the log tells before it is older."""

NOWHERE = -1
"""Offset of a record that may never get into the log: whatever the log tells is newer."""


class _Known(NamedTuple):
    offset: float
    record: WorkerHeartbeat
    former: _Known | None = None


class WorkerRecords:
    """Workers as read from the log, and as written here before they were read. Thread-safe.

    Each change is made to the last one, be it in the log or on its way there, so none undoes another.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[str, _Known] = {}

    def get(self, worker_id: str) -> WorkerHeartbeat | None:
        """A worker as it is known."""
        with self._lock:
            known = self._known.get(worker_id)
            return None if known is None else known.record

    def all(self) -> list[WorkerHeartbeat]:
        """All workers, in the order in which they were first heard of."""
        with self._lock:
            return [known.record for known in self._known.values()]

    def read(self, record: WorkerHeartbeat, offset: int) -> None:
        """The record at ``offset`` of the log."""
        with self._lock:
            known = self._known.get(record.worker_id)
            if known is None or known.offset <= offset:
                self._known[record.worker_id] = _Known(offset, record)

    def change(self, worker_id: str, make: Callable[[WorkerHeartbeat | None], WorkerHeartbeat]) -> WorkerHeartbeat:
        """Replace a worker's record by what ``make`` makes of it; :meth:`written` or :meth:`lost` has to follow."""
        with self._lock:
            former = self._known.get(worker_id)
            record = make(None if former is None else former.record)
            if former is not None and former.former is not None:
                former = _Known(former.offset, former.record)
            self._known[worker_id] = _Known(ON_ITS_WAY, record, former)
            return record

    def written(self, record: WorkerHeartbeat, offset: int) -> None:
        """A changed record is durable at ``offset``."""
        with self._lock:
            if (known := self._known.get(record.worker_id)) is not None and known.record is record:
                self._known[record.worker_id] = _Known(offset, record)

    def lost(self, record: WorkerHeartbeat) -> None:
        """A changed record will not be in the log: what was before it holds, unless it was changed again."""
        with self._lock:
            known = self._known.get(record.worker_id)
            if known is None or known.record is not record:
                return
            if known.former is None:
                del self._known[record.worker_id]
            else:
                at = known.former.offset
                self._known[record.worker_id] = _Known(NOWHERE if at == ON_ITS_WAY else at, known.former.record)
