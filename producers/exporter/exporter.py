"""The span exporter: takes ended spans at once, makes them durable in the background."""

from __future__ import annotations

import atexit
import logging
import multiprocessing
import multiprocessing.util
import os
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from lightstream.runtime.kafka import KafkaPublisher, RecordSink
from lightstream.runtime.redaction import Redaction
from lightstream.runtime.schema_registry import codec_for
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import PublishError

from ..context import AttemptRef
from ._ledger import Group, Ledger
from ._sender import Sender, weight_bytes
from .convert import copied_attributes

EXIT_PRIORITY = 100
"""Before multiprocessing's own finalizers (they have 10 and less)."""


class _Stoppable(Protocol):
    def shutdown(self) -> None: ...


def at_process_exit(exporter: _Stoppable) -> None:
    """Shut ``exporter`` down when this process ends, unless it is gone by then.

    A multiprocessing child leaves by ``os._exit``, past ``atexit``; it runs multiprocessing's finalizers instead.
    """
    reference = weakref.ref(exporter)

    def shut_down() -> None:
        alive = reference()
        if alive is not None:
            alive.shutdown()

    if multiprocessing.parent_process() is None:
        atexit.register(shut_down)
    else:
        multiprocessing.util.Finalize(None, shut_down, exitpriority=EXIT_PRIORITY)


logger = logging.getLogger(__name__)

EXIT_FLUSH_TIMEOUT_S = 10.0
"""Longest that a process that ends waits for Kafka; the spans left are reported as lost."""


@dataclass(frozen=True, slots=True)
class ExporterStats:
    """Spans since the exporter was made (in this process; a forked child starts from zero).

    ``handed_over`` were accepted, of which ``durable`` are in Kafka and ``failed`` are lost; ``rejected`` were never
    accepted; ``truncated`` became durable without their biggest values.
    """

    handed_over: int = 0
    durable: int = 0
    failed: int = 0
    rejected: int = 0
    truncated: int = 0


class KafkaSpanExporter(SpanExporter):
    """An OpenTelemetry ``SpanExporter`` that writes to the topic ``spans``.

    Handing a span over takes microseconds and never waits for Kafka; a background thread converts, encodes and sends.
    At most ``buffer_bytes_max`` bytes wait there; a span beyond that is rejected, counted, and reported by the next
    :meth:`flush` of its attempt. Each span is a record of its own, so no batch can be too big; a span over the record
    limit loses its biggest values and says so (attribute ``lightstream.truncated``).

    Thread-safe. Flushes when the process ends. After a fork the child starts empty; the parent keeps its spans.

    Args:
        settings: names the cluster; ``None`` reads the environment.
        publisher: writes the records; by default a :class:`KafkaPublisher` of its own.
        buffer_bytes_max: estimated memory of spans not yet handed to Kafka's client; by default the setting
            ``send_buffer_bytes_max``, which also bounds the client's own buffer behind it.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        publisher: RecordSink | None = None,
        buffer_bytes_max: int | None = None,
    ) -> None:
        self._settings = settings or Settings.load()
        self._publisher = publisher or KafkaPublisher(self._settings)
        self._owns_publisher = publisher is None
        self._buffer_bytes_max = buffer_bytes_max or self._settings.send_buffer_bytes_max
        self._reset()
        _EXPORTERS.add(self)

    def _reset(self) -> None:
        self._ledger = Ledger()
        self._sender = Sender(
            self._publisher,
            self._ledger,
            codec_for(self._settings),
            Redaction(self._settings),
            retry_timeout_s=self._settings.publish_timeout_s,
        )
        self._handed_bytes = 0
        self._handed_over = 0
        self._rejected = 0
        self._closed = False
        self._started = False

    def submit(self, span: ReadableSpan, attempt: AttemptRef | None = None) -> bool:
        """Hand one ended span over; returns at once. ``False``: it was rejected (the buffer is full, or closed)."""
        attributes = copied_attributes(span)
        size_bytes = weight_bytes(attributes)
        ledger = self._ledger
        with ledger.door:
            group = ledger.group_of(attempt)
            waiting_bytes = self._handed_bytes - self._sender.taken_bytes
            if self._closed or (waiting_bytes and waiting_bytes + size_bytes > self._buffer_bytes_max):
                self._reject(group, waiting_bytes)
                return False
            group.handed += 1
            self._handed_bytes += size_bytes
            self._handed_over += 1
            started, self._started = self._started, True
        self._sender.put(span, attributes, attempt, group, size_bytes)
        if not started:
            self._sender.start()
            at_process_exit(self)
        return True

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Hand spans over; ``FAILURE`` if any was rejected. They are durable after :meth:`force_flush`."""
        accepted = [self.submit(span) for span in spans]
        return SpanExportResult.SUCCESS if all(accepted) else SpanExportResult.FAILURE

    def flush(self, attempt: AttemptRef | None = None, *, timeout_s: float | None = None) -> None:
        """Wait until every span handed over so far is durable; with ``attempt``, only that attempt's.

        Raises:
            PublishError: some were lost or rejected since the last flush, or ``timeout_s`` (default: the setting
                ``publish_timeout_s``) was too short for some; these stay on their way.
        """
        groups = self._ledger.seal(attempt, every=attempt is None)
        timeout_s = self._settings.publish_timeout_s if timeout_s is None else timeout_s
        unsettled = self._ledger.wait(groups, timeout_s)
        problems = [f"{unsettled} did not become durable within {timeout_s:g} s"] if unsettled else []
        done = [group for _, group in groups if group.done.is_set()]
        failed, rejected = sum(g.failed for g in done), sum(g.rejected for g in done)
        if failed:
            problems.append(f"{failed} were lost ({next(g.first_error for g in done if g.first_error)})")
        if rejected:
            problems.append(f"{rejected} were rejected ({next(g.rejected_error for g in done if g.rejected_error)})")
        if problems:
            of_whom = "" if attempt is None else f" of attempt {attempt.attempt_id!r}"
            raise PublishError(
                f"spans{of_whom} are missing from the log: {'; '.join(problems)}.",
                next_step="Is Kafka reachable? LIGHTSTREAM_SEND_BUFFER_BYTES_MAX and LIGHTSTREAM_PUBLISH_TIMEOUT_S "
                "limit how much waits and for how long.",
            )

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        """As :meth:`flush`, for the SDK: ``False``, and a logged error, instead of an exception."""
        try:
            self.flush(timeout_s=timeout_millis / 1000)
        except PublishError as error:
            logger.error("%s", error)
            return False
        return True

    def shutdown(self, timeout_s: float = EXIT_FLUSH_TIMEOUT_S) -> None:
        """Flush, then stop. Later spans are rejected. Does nothing the second time."""
        with self._ledger.door:
            closed, self._closed = self._closed, True
        if closed:
            return
        self.force_flush(int(timeout_s * 1000))
        self._sender.stop()
        if self._owns_publisher and isinstance(self._publisher, KafkaPublisher):
            self._publisher.close(0.0)

    @property
    def stats(self) -> ExporterStats:
        """Counts of the spans so far."""
        ledger, truncated = self._ledger, self._sender.truncated
        return ExporterStats(self._handed_over, ledger.durable, ledger.failed, self._rejected, truncated)

    def _reject(self, group: Group, waiting_bytes: int) -> None:
        self._rejected += 1
        group.rejected += 1
        reason = (
            "the exporter is shut down"
            if self._closed
            else f"the buffer of {self._buffer_bytes_max:,} bytes is full: {waiting_bytes:,} bytes wait for Kafka"
        )
        group.rejected_error = reason
        if self._rejected & (self._rejected - 1) == 0:  # the 1st, 2nd, 4th, 8th, …: told, but not a flood
            logger.error("%d spans rejected so far: %s.", self._rejected, reason)


_EXPORTERS: weakref.WeakSet[Any] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for exporter in list(_EXPORTERS):
        exporter._reset()


os.register_at_fork(after_in_child=_after_fork_in_child)
