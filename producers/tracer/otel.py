"""The tracer: spans made by any OpenTelemetry instrumentation, sorted into the attempts they belong to."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.environment_variables import (
    OTEL_EXPORTER_OTLP_ENDPOINT,
    OTEL_EXPORTER_OTLP_PROTOCOL,
    OTEL_EXPORTER_OTLP_TRACES_ENDPOINT,
    OTEL_EXPORTER_OTLP_TRACES_PROTOCOL,
)
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter

from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import SettingsError
from lightstream.schemas.interfaces import LightningStore
from lightstream.schemas.types import Attributes, Span, SpanCoreFields, TraceStatus

from ..context import AttemptRef
from ..exporter import KafkaSpanExporter
from ..tracer import sdk_spans
from .base import Tracer
from .provider import install
from .running import TraceRecording
from .sinks import SpanSink, StoreSpanSink
from .trace_context import TraceContext, recording_of

_HTTP, _GRPC = "http/protobuf", "grpc"
_OF_THE_PROCESS = {
    *("_provider", "_processor", "_owns_exporter", "exporter", "_store", "_store_sink", "_workers", "_workers_lock"),
    *("_last", "worker_id"),
}
"""Attributes that another process makes for itself."""


def otlp_processor(endpoint: str | None = None) -> SpanProcessor | None:
    """A batch processor that sends to a collector, or ``None`` where no endpoint is set.

    Args:
        endpoint: full URL of the traces endpoint; ``None`` reads OpenTelemetry's environment variables
            (``OTEL_EXPORTER_OTLP_TRACES_ENDPOINT``, ``OTEL_EXPORTER_OTLP_ENDPOINT``, and the protocol's).

    Raises:
        SettingsError: the protocol is neither ``http/protobuf`` nor ``grpc``.
    """
    named = os.environ.get(OTEL_EXPORTER_OTLP_TRACES_ENDPOINT) or os.environ.get(OTEL_EXPORTER_OTLP_ENDPOINT)
    if not endpoint and not named:
        return None
    return BatchSpanProcessor(_exporter(endpoint))


def _exporter(endpoint: str | None) -> SpanExporter:
    protocol = os.environ.get(OTEL_EXPORTER_OTLP_TRACES_PROTOCOL) or os.environ.get(OTEL_EXPORTER_OTLP_PROTOCOL, _HTTP)
    if protocol == _HTTP:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        return OTLPSpanExporter(endpoint=endpoint)
    if protocol == _GRPC:
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as OTLPGrpcSpanExporter

        return OTLPGrpcSpanExporter(endpoint=endpoint)
    raise SettingsError(
        f"{OTEL_EXPORTER_OTLP_TRACES_PROTOCOL} or {OTEL_EXPORTER_OTLP_PROTOCOL} is {protocol!r}; "
        f"it must be {_HTTP!r} or {_GRPC!r}."
    )


class OtelTracer(Tracer):
    """Routes spans to Kafka, each to its attempt. Any number of attempts may run at once, in threads and tasks.

    Uses the process's ``TracerProvider`` (an application's own, if it set one before; it keeps its processors), so
    whatever the agent's libraries emit is seen. Where OpenTelemetry's OTLP endpoint is set, spans go there as well.

    A tracer can be pickled, with the attributes of a subclass. In the other process it uses that process's provider and
    opens an exporter there; stores, workers and traces of this process stay here.

    Args:
        settings: names the cluster; ``None`` reads the environment.
        exporter: writes the spans; by default one of its own.
        otlp_endpoint: URL of a collector's traces endpoint, in addition to the environment's.

    Raises:
        SettingsError: OpenTelemetry is switched off (``OTEL_SDK_DISABLED``), or its OTLP protocol is unknown.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        exporter: KafkaSpanExporter | None = None,
        otlp_endpoint: str | None = None,
    ) -> None:
        self._settings = settings
        self._otlp_endpoint = otlp_endpoint
        self._provider, self._processor = install()
        self._owns_exporter = exporter is None
        self.exporter = exporter or KafkaSpanExporter(settings)
        self._store_sink: StoreSpanSink | None = None
        self._workers: set[int] = set()
        self._workers_lock = threading.Lock()
        self._last: TraceRecording | None = None
        self._processor.set_default(self.exporter)
        _add_otlp_once(self._provider, otlp_endpoint)

    def __getstate__(self) -> dict[str, Any]:
        if not self._owns_exporter:
            raise TypeError(
                f"the {type(self).__name__} was given an exporter, which belongs to this process: "
                "give a function that makes the tracer"
            )
        return {name: value for name, value in vars(self).items() if name not in _OF_THE_PROCESS}

    def __setstate__(self, state: dict[str, Any]) -> None:
        OtelTracer.__init__(self, state["_settings"], otlp_endpoint=state["_otlp_endpoint"])
        vars(self).update(state)

    def init_worker(self, worker_id: int, store: LightningStore | None = None, *args: Any, **kwargs: Any) -> None:
        """As the base class. A given store takes the spans of attempts instead of Kafka.

        Workers of one process may share a tracer: the last store given counts.
        """
        super().init_worker(worker_id, store)
        with self._workers_lock:
            self._workers.add(worker_id)
            if store is None:
                self._store_sink = None
            elif self._store_sink is None or self._store_sink.store is not store:
                self._store_sink = StoreSpanSink(store)

    def teardown_worker(self, worker_id: int, *args: Any, **kwargs: Any) -> None:
        """As the base class; with the last worker, the store's spans are flushed and the store forgotten."""
        super().teardown_worker(worker_id)
        with self._workers_lock:
            self._workers.discard(worker_id)
            sink = None if self._workers else self._store_sink
            if sink is not None:
                self._store_sink = None
        if sink is not None:
            sink.shutdown()

    def get_tracer(self) -> trace.Tracer:
        """An OpenTelemetry tracer whose spans come here."""
        return self._provider.get_tracer(sdk_spans.INSTRUMENTATION_NAME)

    def trace_context(
        self,
        name: str | None = None,
        *,
        store: LightningStore | None = None,
        rollout_id: str | None = None,
        attempt_id: str | None = None,
        flush: bool = True,
    ) -> TraceContext:
        """Everything that runs inside, tasks and copied contexts included, belongs to one attempt.

        For ``with`` and ``async with``; gives an OpenTelemetry tracer. Trace contexts may be nested; the
        inner one counts.

        Args:
            name: of the trace, for tracers that make a span around the others; this one makes none.
            store: takes the spans instead of Kafka, or of the store that :meth:`init_worker` was given.
            rollout_id, attempt_id: the attempt; without them spans are kept under their trace id.
            flush: on leaving, wait until its spans are durable.

        Raises:
            SettingsError: only one of the two ids is given.
            PublishError: on leaving: spans of this attempt did not become durable.
        """
        if (rollout_id is None) != (attempt_id is None):
            raise SettingsError("give both rollout_id and attempt_id, or neither.")
        attempt = AttemptRef(rollout_id, attempt_id) if rollout_id is not None and attempt_id is not None else None
        sink = self._sink(store, attempt)
        return TraceContext(
            self,
            self.get_tracer(),
            self._processor,
            attempt,
            sink,
            enclosing=self._enclosing(name, attempt),
            on_left=self._remember,
            flush=flush,
        )

    def create_span(
        self,
        name: str,
        attributes: Attributes | None = None,
        timestamp: float | None = None,
        status: TraceStatus | None = None,
    ) -> SpanCoreFields:
        return sdk_spans.create_span(self._provider, name, attributes, timestamp, status)

    def operation_context(
        self,
        name: str,
        attributes: Attributes | None = None,
        start_time: float | None = None,
        end_time: float | None = None,
    ) -> AbstractContextManager[sdk_spans.SdkSpanRecordingContext]:
        """As the base class; the span ends when it is left, so ``end_time`` does not count."""
        return sdk_spans.operation_context(self._provider, name, attributes, start_time)

    def get_last_trace(self) -> list[Span]:
        """The ended spans of the trace context that runs here; outside of one, of the one that was left here last.

        "Here" is a task or thread: rollouts that run at once each see their own. Where none was, the last one that
        any task left counts; before the first there are none.
        """
        recording = recording_of(self, self._last)
        return [] if recording is None else recording.spans()

    def flush(self, attempt: AttemptRef | None = None) -> None:
        """Wait until the spans so far (of ``attempt``, or all) are durable.

        Raises:
            PublishError: some are lost, or did not become durable in time.
        """
        if self._store_sink is not None:
            self._store_sink.flush(attempt)
        self.exporter.flush(attempt)

    def close(self) -> None:
        """Flush, and stop the exporter if it is this tracer's own. The provider stays."""
        if self._processor.default_sink is self.exporter:
            self._processor.set_default(None)
        if self._owns_exporter:
            self.exporter.shutdown()
        else:
            self.exporter.force_flush()

    def _remember(self, recording: TraceRecording) -> None:
        """The last trace of this tracer, for callers that were in none themselves."""
        self._last = recording

    def _enclosing(
        self, name: str | None, attempt: AttemptRef | None
    ) -> Callable[[], AbstractContextManager[object]] | None:
        """The context manager of the span that encloses a trace's others, if any."""
        return None

    def _sink(self, store: LightningStore | None, attempt: AttemptRef | None) -> SpanSink:
        if store is not None and (self._store_sink is None or self._store_sink.store is not store):
            self._store_sink = StoreSpanSink(store)
        if self._store_sink is None or attempt is None:
            return self.exporter
        return self._store_sink


_otlp_lock = threading.Lock()
_otlp_endpoints: set[str | None] = set()


def _add_otlp_once(provider: TracerProvider, endpoint: str | None) -> None:
    """A second tracer of the process must not send each span to the collector twice."""
    with _otlp_lock:
        if endpoint in _otlp_endpoints:
            return
        processor = otlp_processor(endpoint)
        if processor is not None:
            provider.add_span_processor(processor)
            _otlp_endpoints.add(endpoint)
