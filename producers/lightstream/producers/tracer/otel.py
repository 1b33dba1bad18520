"""The tracer: spans made by any OpenTelemetry instrumentation, sorted into the attempts they belong to."""

from __future__ import annotations

import asyncio
import threading
from contextlib import AbstractContextManager
from contextvars import Token
from types import TracebackType

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from lightstream.schemas.errors import SettingsError
from lightstream.schemas.settings import Settings

from ..context import AttemptRef, current_attempt
from ..exporter import KafkaSpanExporter
from .otlp import otlp_processor
from .provider import install
from .routing import RoutingSpanProcessor

__all__ = ["OtelTracer", "TraceContext"]

INSTRUMENTATION_NAME = "lightstream"


class OtelTracer:
    """Routes spans to Kafka, each to its attempt. Any number of attempts may run at once, in threads and tasks.

    Uses the process's ``TracerProvider`` (an application's own, if it set one before; it keeps its processors), so
    whatever the agent's libraries emit is seen. Where OpenTelemetry's OTLP endpoint is set, spans go there as well.

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
        self._provider, self._processor = install()
        self._owns_exporter = exporter is None
        self.exporter = exporter or KafkaSpanExporter(settings)
        self._processor.set_default(self.exporter)
        _add_otlp_once(self._provider, otlp_endpoint)

    def get_tracer(self) -> trace.Tracer:
        """An OpenTelemetry tracer whose spans come here."""
        return self._provider.get_tracer(INSTRUMENTATION_NAME)

    def trace_context(
        self,
        name: str | None = None,
        *,
        rollout_id: str | None = None,
        attempt_id: str | None = None,
        flush: bool = True,
    ) -> TraceContext:
        """Everything that runs inside, tasks and copied contexts included, belongs to one attempt.

        For ``with`` and ``async with``; gives an OpenTelemetry tracer.

        Args:
            name: if given, one span of that name encloses all others.
            rollout_id, attempt_id: the attempt; without them spans are kept under their trace id.
            flush: on leaving, wait until its spans are durable.

        Raises:
            SettingsError: only one of the two ids is given.
            PublishError: on leaving: spans of this attempt did not become durable.
        """
        if (rollout_id is None) != (attempt_id is None):
            raise SettingsError("rollout_id and attempt_id are needed together, or neither.")
        attempt = AttemptRef(rollout_id, attempt_id) if rollout_id is not None and attempt_id is not None else None
        return TraceContext(self, self._processor, attempt, name, flush=flush)

    def close(self) -> None:
        """Flush, and stop the exporter if it is this tracer's own. The provider stays."""
        if self._processor.default_exporter is self.exporter:
            self._processor.set_default(None)
        if self._owns_exporter:
            self.exporter.shutdown()
        else:
            self.exporter.force_flush()


class TraceContext:
    """See :meth:`OtelTracer.trace_context`. Use once."""

    def __init__(
        self,
        tracer: OtelTracer,
        processor: RoutingSpanProcessor,
        attempt: AttemptRef | None,
        name: str | None,
        *,
        flush: bool,
    ) -> None:
        self._tracer = tracer
        self._processor = processor
        self._attempt = attempt
        self._flush = flush
        self._name = name
        self._token: Token[AttemptRef | None] | None = None
        self._span_context: AbstractContextManager[trace.Span] | None = None

    def __enter__(self) -> trace.Tracer:
        self._token = current_attempt.set(self._attempt)
        if self._attempt is not None:
            self._processor.register(self._attempt, self._tracer.exporter)
        tracer = self._tracer.get_tracer()
        if self._name is not None:
            self._span_context = tracer.start_as_current_span(self._name)
            self._span_context.__enter__()
        return tracer

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._leave(kind, error, traceback)
        if self._flush:
            self._tracer.exporter.flush(self._attempt)

    async def __aenter__(self) -> trace.Tracer:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._leave(kind, error, traceback)
        if self._flush:
            await asyncio.to_thread(self._tracer.exporter.flush, self._attempt)

    def _leave(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if self._span_context is not None:
                self._span_context.__exit__(kind, error, traceback)
        finally:
            if self._attempt is not None:
                self._processor.unregister(self._attempt)
            if self._token is not None:
                current_attempt.reset(self._token)


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
