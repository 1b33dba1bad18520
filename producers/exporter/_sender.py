"""The background half of the exporter: converts, encodes, sends, and settles."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeAlias

from opentelemetry.sdk.trace import ReadableSpan

from lightstream.runtime.kafka import Delivered, Outgoing, RecordSink
from lightstream.runtime.redaction import Redaction
from lightstream.schemas.codec import Codec
from lightstream.schemas.errors import BackpressureError, PublishError, RecordError, RecordTooLargeError
from lightstream.schemas.records import SpanRecord
from lightstream.schemas.topics import SPANS

from ..context import AttemptRef
from ._ledger import Group, Ledger
from .convert import record_of
from .fitting import shortened, taken_as_fits

logger = logging.getLogger(__name__)

RETRY_INTERVAL_S = 0.01
"""Interval at which a full client buffer is tried again."""

SPAN_WEIGHT_BYTES, VALUE_WEIGHT_BYTES, ITEM_WEIGHT_BYTES = 2048, 128, 36
"""Memory of a span, of an attribute, and of a number in a list (CPython 3.11, 64 bit)."""

_WEIGHTLESS = frozenset({int, float, bool, type(None)})

_Entry: TypeAlias = "tuple[ReadableSpan, dict[str, Any], AttemptRef | None, Group, int]"


def weight_bytes(attributes: Mapping[str, Any]) -> int:
    """About how much memory a span with these attributes holds: lengths only, so it takes a microsecond or two."""
    total = SPAN_WEIGHT_BYTES + VALUE_WEIGHT_BYTES * len(attributes)
    for value in attributes.values():
        kind = type(value)
        if kind in _WEIGHTLESS:
            continue
        if kind is str or kind is bytes:
            total += len(value)
        elif (kind is tuple or isinstance(value, Sequence)) and value:
            first = value[0]
            item = ITEM_WEIGHT_BYTES if type(first) in _WEIGHTLESS else _item_weight_bytes(first)
            total += len(value) * item
    return total


def _item_weight_bytes(item: Any) -> int:
    return ITEM_WEIGHT_BYTES + (len(item) if isinstance(item, (str, bytes)) else 0)


class Sender:
    """One daemon thread that sends items in the order in which they are put.

    Attributes:
        taken_bytes: weight of all entries that left the queue; only the thread writes it.
        truncated: spans, for the statistics.
    """

    def __init__(
        self, publisher: RecordSink, ledger: Ledger, codec: Codec, redact: Redaction, *, retry_timeout_s: float
    ) -> None:
        self._publisher = publisher
        self._codec = codec
        self._redact = redact
        self._ledger = ledger
        self._retry_timeout_s = retry_timeout_s
        self._queue: SimpleQueue[_Entry | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self.taken_bytes = 0
        self.truncated = 0

    def put(
        self, span: ReadableSpan, attributes: dict[str, Any], attempt: AttemptRef | None, group: Group, size_bytes: int
    ) -> None:
        """Queue one span with a copy of its attributes, which is taken over; does not block."""
        self._queue.put((span, attributes, attempt, group, size_bytes))

    def start(self) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=self._run, name="lightstream-span-sender", daemon=True)
        self._thread.start()

    def stop(self, timeout_s: float = 1.0) -> None:
        """End the thread once the queue is empty."""
        self._queue.put(None)
        if self._thread is not None:
            self._thread.join(timeout_s)

    def _run(self) -> None:
        while (entry := self._queue.get()) is not None:
            span, attributes, attempt, group, size_bytes = entry
            try:
                delivered = group.delivered
                if delivered is None:
                    delivered = group.delivered = partial(self._settle, group)
                self._send(self._redact(record_of(span, attempt, attributes=attributes)), delivered)
            except (PublishError, RecordError) as error:
                self._settle(group, error)
            except Exception as error:  # noqa: BLE001  # recorded: the span counts as lost, and flush raises
                self._settle(group, PublishError(f"{type(error).__name__}: {error}"))
            self.taken_bytes += size_bytes
            del entry, span, attributes

    def _send(self, record: SpanRecord, delivered: Delivered) -> None:
        _, is_shortened = taken_as_fits(record, lambda fitting: self._publish(fitting, delivered))
        if is_shortened:
            self.truncated += 1
            logger.warning("the span %r is over the record limit and was truncated.", record.name[:200])

    def _publish(self, record: SpanRecord, delivered: Delivered) -> None:
        """Send it, waiting while the client's buffer is full."""
        key = record.rollout_id or record.trace_id
        deadline: float | None = None
        while True:
            try:
                return self._publisher.send(SPANS, key, record, delivered, instead=partial(self._instead, key, record))
            except BackpressureError:
                now = time.monotonic()
                deadline = deadline or now + self._retry_timeout_s
                if now > deadline:
                    raise
            time.sleep(RETRY_INTERVAL_S)

    def _instead(self, key: str, record: SpanRecord, error: RecordTooLargeError) -> Outgoing:
        """The span in the size that the topic takes."""
        self.truncated += 1
        cut = shortened(record, error.size_bytes - error.limit_bytes)
        return Outgoing(SPANS, key, self._codec.encode(cut), instead=partial(self._instead, key, cut))

    def _settle(self, group: Group, error: PublishError | RecordError | None) -> None:
        if error is None:
            self._ledger.settle(group, None)
            return
        self._ledger.settle(group, str(error))
        failed = self._ledger.failed
        if failed & (failed - 1) == 0:  # the 1st, 2nd, 4th, …: told, but not a flood
            logger.error("%d spans lost so far: %s", failed, error)
