"""What is known of the topic ``resources``. One partition, so "latest" and "older" are a matter of offsets."""

from __future__ import annotations

import threading
from collections import OrderedDict

from lightstream.schemas.errors import ServiceUnavailableError
from lightstream.schemas.records import ResourcesRecord

__all__ = ["ResourceVersions"]

CATCH_UP_TIMEOUT_S = 30.0
"""How long a reader waits for what it is known to have seen elsewhere: a broker's restart passes."""

RESOURCES_KEPT_MAX = 10_000
"""Versions kept in memory (about 1 KB each); older ones are forgotten here, not in the log."""


class ResourceVersions:
    """Resources as read from the log, and as written here before they were read. Thread-safe."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._known: OrderedDict[str, tuple[int, ResourcesRecord]] = OrderedDict()
        self._latest: tuple[int, ResourcesRecord] | None = None
        self._read_up_to = -1
        self._seen = -1
        self._stopped = False

    def read(self, record: ResourcesRecord, offset: int) -> None:
        """The record at ``offset`` of the log; all before it have been read."""
        self.wrote(record, offset)
        self.passed(offset)

    def passed(self, offset: int) -> None:
        """Everything up to ``offset`` has been read."""
        with self._changed:
            self._read_up_to = max(offset, self._read_up_to)
            self._changed.notify_all()

    def wrote(self, record: ResourcesRecord, offset: int) -> None:
        """A record that is durable at ``offset``. What was written after it stays the latest."""
        with self._changed:
            known = self._known.get(record.resources_id)
            if known is None or known[0] <= offset:
                self._known[record.resources_id] = (offset, record)
            if self._latest is None or self._latest[0] <= offset:
                self._latest = (offset, record)
            if len(self._known) > RESOURCES_KEPT_MAX:
                self._known.popitem(last=False)
            self._changed.notify_all()

    def seen(self, offset: int) -> None:
        """A reader here has seen the record at ``offset`` elsewhere: from now on, what is told reflects it."""
        with self._changed:
            self._seen = max(offset, self._seen)

    def latest_offset(self) -> int:
        """Of the latest resources that a reader here may have been told of; -1 before the first."""
        with self._changed:
            return max(self._seen, -1 if self._latest is None else self._latest[0])

    def is_behind(self) -> bool:
        """Whether :meth:`find` and :meth:`all` would wait for the log to be read."""
        with self._changed:
            return self._read_up_to < self._seen

    def find(self, resources_id: str | None, timeout_s: float) -> ResourcesRecord | None:
        """Resources by id, or the latest; waits up to ``timeout_s`` for them. ``None`` if they did not appear.

        Raises:
            ServiceUnavailableError: what a reader here has seen elsewhere could not be read in time.
        """

        def found() -> ResourcesRecord | None:
            known = self._latest if resources_id is None else self._known.get(resources_id)
            return None if known is None else known[1]

        with self._changed:
            self._catch_up()
            self._changed.wait_for(lambda: found() is not None or self._stopped, timeout_s)
            return found()

    def all(self) -> list[ResourcesRecord]:
        """All that are kept here, by the time they were first stored; raises as :meth:`find`."""
        with self._changed:
            self._catch_up()
            return [record for _, record in self._known.values()]

    def stop(self) -> None:
        """Nobody reads any more: wake whoever waits."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def _catch_up(self) -> None:
        if not self._changed.wait_for(lambda: self._read_up_to >= self._seen or self._stopped, CATCH_UP_TIMEOUT_S):
            raise ServiceUnavailableError(
                f"resources were seen at offset {self._seen}, but are read only up to {self._read_up_to} here.",
                next_step="Does Kafka answer? `lightstream status` shows it.",
            )
