"""Interfaces of publishers, and the values that they take and return."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

from lightstream.schemas.errors import PublishError, RecordTooLargeError
from lightstream.schemas.records import Record
from lightstream.schemas.topics import Topic

BY_KEY = -1
"""The key's hash decides the partition."""


Headers: TypeAlias = "list[tuple[str, str | bytes | None]]"


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """The position of a record in the log: unprefixed topic, partition, offset."""

    topic: str
    partition: int
    offset: int


class Outgoing(NamedTuple):
    """An encoded record and where it goes; ``None`` is an empty value.

    ``instead`` makes something smaller of it where the broker's limit is below ours, to be sent in its place. It is
    called on a thread of the publisher's, may block, and returns ``None`` where nothing smaller is worth sending.
    """

    topic: Topic
    key: str
    value: bytes | None
    headers: Headers | None = None
    partition: int = BY_KEY
    instead: Callable[[RecordTooLargeError], Outgoing | None] | None = None


Instead: TypeAlias = "Callable[[RecordTooLargeError], Outgoing | None]"

Delivered: TypeAlias = "Callable[[PublishError | None], None]"
"""Called, on another thread, once a record is durable (``None``) or lost. Must not block or raise."""


class Publisher(Protocol):
    """Something that makes records durable."""

    def publish(
        self,
        topic: Topic,
        key: str,
        record: Record | None,
        *,
        headers: Headers | None = None,
        partition: int = BY_KEY,
        instead: Instead | None = None,
    ) -> Future[Position]:
        """Hand over one record; the future resolves when it is durable, or fails with :class:`PublishError`."""
        ...

    def flush(self, timeout_s: float) -> int:
        """Wait until all is durable or ``timeout_s`` is over; returns how many records are still on their way."""
        ...


class BatchPublisher(Publisher, Protocol):
    """A publisher that takes encoded records in a row."""

    def encoded(self, topic: Topic, record: Record) -> bytes:
        """The record as it is written."""
        ...

    def publish_all(self, records: Sequence[Outgoing]) -> tuple[int, Future[list[Position]]]:
        """Hand over encoded records in a row; how many, and a future of where these landed."""
        ...


class RecordSink(Protocol):
    """Something that makes many records durable, and reports by a callback."""

    def send(
        self, topic: Topic, key: str, record: Record, delivered: Delivered, *, instead: Instead | None = None
    ) -> None:
        """Hand over one record; ``delivered`` is called once, unless this raises.

        Args:
            instead: as of :class:`Outgoing`.

        Raises:
            RecordTooLargeError: the encoded record is over the limit; nothing was sent.
            BackpressureError: the send buffer is full; nothing was sent.
            RecordError: the record cannot be encoded; nothing was sent.
        """
        ...
