"""Releases in the log: read as far as it goes, and changed by one record."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from lightstream.schemas.errors import DecodeError, PublishError, StoreError
from lightstream.schemas.records import GateReport, Record, ReleaseChanged
from lightstream.schemas.releases import Author, Release, folded
from lightstream.schemas.topics import RELEASES

from .kafka import KafkaPublisher, PartitionReader, decoded
from .schema_registry import codec_for
from .settings import Settings

GROUP_ID = "lightstream-releases"

PARTITION = 0
"""``releases`` has one partition, so that its records have one order."""


class ReleaseLog:
    """Reads and changes releases. Each call reads the topic from its beginning; calls should be rare. For any thread.

    Args:
        settings: name the cluster.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._codec = codec_for(settings)

    def states(self) -> dict[str, ReleaseChanged]:
        """Name -> state of every release.

        Raises:
            ServiceUnavailableError: the cluster does not answer.
        """
        states: dict[str, ReleaseChanged] = {}
        for _, record in self._records():
            folded(states, record)
        return states

    def history(self, name: str) -> list[ReleaseChanged]:
        """Every change of a release, the first one first; empty where there is no such release.

        Raises:
            ServiceUnavailableError: the cluster does not answer.
        """
        states: dict[str, ReleaseChanged] = {}
        return [record for _, record in self._records() if folded(states, record) and record.release == name]

    def reports(self, name: str) -> list[GateReport]:
        """Every report of the gate of a release, each once, the first one first.

        Raises:
            ServiceUnavailableError: the cluster does not answer.
        """
        found: dict[str, GateReport] = {}
        for _, record in self._read():
            if isinstance(record, GateReport) and record.release == name:
                found.setdefault(record.report_id, record)
        return list(found.values())

    def change(
        self, name: str, author: tuple[str, str], wish: Callable[[Release, Author], ReleaseChanged]
    ) -> ReleaseChanged:
        """Change a release.

        Args:
            author: who, and why.
            wish: makes the change from the state, as the functions of :mod:`lightstream.schemas.releases`.

        Returns:
            The change, once it is durable and counts.

        Raises:
            StoreError: the wish cannot be; or another change came first. The release is as that one left it.
            PublishError: Kafka has not acknowledged it. It may count nevertheless: look before you repeat it.
            ServiceUnavailableError: the cluster does not answer.
        """
        state = self.states().get(name)
        change = wish(Release(name, state), Author(*author, now_unix_nano=time.time_ns()))
        publisher = KafkaPublisher(self._settings, codec=self._codec, linger_ms=0.0)
        try:
            position = publisher.publish(RELEASES, name, change).result(self._settings.publish_timeout_s)
        except TimeoutError as error:
            raise PublishError(
                "Kafka has not acknowledged the change.", next_step="`lightstream release list` shows if it counts."
            ) from error
        finally:
            publisher.close()
        states: dict[str, ReleaseChanged] = {}
        for offset, record in self._records():
            counts = folded(states, record)
            if offset == position.offset and counts:
                return change
            if offset == position.offset:
                break
        first = states[name]
        raise StoreError(
            f"another change of release {name!r} came first: {first.action} by {first.by or 'nobody named'}.",
            next_step="Look at it with `lightstream release list`, then repeat yours if you still want it.",
        )

    def _records(self) -> Iterator[tuple[int, ReleaseChanged]]:
        for offset, record in self._read():
            if isinstance(record, ReleaseChanged):
                yield offset, record

    def _read(self) -> Iterator[tuple[int, Record]]:
        reader = PartitionReader(self._settings, RELEASES, PARTITION, group_id=GROUP_ID)
        for message in reader.records():
            if message.value() is None:
                continue
            try:
                yield message.offset() or 0, decoded(self._codec, message)
            except DecodeError:
                continue  # the view tells of it
