"""Delivery reports of the Kafka client."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeAlias

from confluent_kafka import KafkaError, Message

from lightstream.schemas.errors import PublishError, RecordRefusedError
from lightstream.schemas.topics import Topic

from .publishing import Delivered, Position
from .unavailable import STEPS

Report: TypeAlias = "Callable[[PublishError | None, Message | None, Topic], None]"
"""Called once a record, or the one in its place, is durable in a topic, with the message, or lost."""

TOO_LARGE = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE})
"""Errors of a broker that will be the same the next time: for the record, or the batch that it was in."""

REFUSALS = TOO_LARGE | {KafkaError.INVALID_RECORD, KafkaError.INVALID_TIMESTAMP}
"""As :data:`TOO_LARGE`, whatever the reason: a rule on times, or a check of the broker's operator."""


class Batch:
    """Delivery of records that were handed over together. Reported on one thread, counted on another."""

    def __init__(self, count: int) -> None:
        self.durable: Future[list[Position]] = Future()
        self.durable.set_running_or_notify_cancel()
        self._lock = threading.Lock()
        self._positions: list[Position | None] = [None] * count
        self._error: PublishError | None = None
        self._reported = 0
        self._expected = -1

    def report(self, number: int, error: PublishError | None, message: Message | None, topic: Topic) -> None:
        """Called by the client once record ``number`` is durable or lost."""
        if error is None and message is not None:
            self._positions[number] = position_of(topic, message)
        elif self._error is None:
            self._error = error or loss_of(topic, None)
        with self._lock:
            self._reported += 1
            over = self._reported == self._expected
        if over:
            self._resolve()

    def end(self, count: int) -> None:
        """Note that only the first ``count`` records were handed over."""
        with self._lock:
            self._expected = count
            over = self._reported == count
        if over:
            self._resolve()

    def _resolve(self) -> None:
        if self._error is not None:
            self.durable.set_exception(self._error)
        else:
            self.durable.set_result([place for place in self._positions if place is not None])


def report_to(delivered: Delivered) -> Report:
    """A report that tells ``delivered`` alone."""

    def report(error: PublishError | None, message: Message | None, topic: Topic) -> None:
        delivered(error if error is not None or message is not None else loss_of(topic, None))

    return report


def is_refusal(error: KafkaError) -> bool:
    """True where a broker will not take the record, or its batch, the next time either."""
    return error.code() in REFUSALS


def is_too_large(error: KafkaError) -> bool:
    """True for a broker's, or the client's own, refusal of a size."""
    return error.code() in TOO_LARGE


def position_of(topic: Topic, message: Message) -> Position:
    """The partition and offset of the delivered record."""
    return Position(topic.name, message.partition() or 0, message.offset() or 0)


def loss_of(topic: Topic, error: KafkaError | None) -> PublishError:
    """The error that the writer of a lost record gets."""
    step = "" if error is None else STEPS.get(error.code(), "")
    kind = RecordRefusedError if error is not None and is_refusal(error) else PublishError
    return kind(f"a record for {topic.name!r} did not become durable: {error}.", next_step=step)
