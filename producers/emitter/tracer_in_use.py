"""Through which tracer an emitter speaks."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from lightstream.schemas.errors import SettingsError
from lightstream.schemas.types import Attributes, SpanCoreFields, SpanRecordingContext, TraceStatus

from ..tracer import DummyTracer, Tracer, get_active_tracer
from ..tracer.sdk_spans import create_span, operation_context


class NoActiveTracerError(SettingsError, RuntimeError):
    """No tracer is active, so an emitted span would be lost.

    Also a ``RuntimeError``, as callers of Agent Lightning's emitters expect.
    """


class ProviderTracer(Tracer):
    """Uses the OpenTelemetry SDK that the process has, set up by ``opentelemetry-instrument``, say."""

    def __init__(self, provider: TracerProvider) -> None:
        self._provider = provider

    def create_span(
        self,
        name: str,
        attributes: Attributes | None = None,
        timestamp: float | None = None,
        status: TraceStatus | None = None,
    ) -> SpanCoreFields:
        return create_span(self._provider, name, attributes, timestamp, status)

    @contextmanager
    def operation_context(
        self,
        name: str,
        attributes: Attributes | None = None,
        start_time: float | None = None,
        end_time: float | None = None,
    ) -> Generator[SpanRecordingContext]:
        with operation_context(self._provider, name, attributes, start_time) as recording:
            yield recording


def speaking_tracer(propagate: bool) -> Tracer:
    """The active tracer; without one the process's OpenTelemetry SDK; one that sends nothing without ``propagate``.

    Raises:
        NoActiveTracerError: there is neither.
    """
    if not propagate:
        return DummyTracer()
    tracer = get_active_tracer()
    if tracer is not None:
        return tracer
    provider = trace.get_tracer_provider()
    if not isinstance(provider, TracerProvider):
        raise NoActiveTracerError(
            "no tracer is active, so the emitted span would be lost.",
            next_step="Run the agent with a Runner, or inside `OtelTracer().trace_context(...)`; "
            "`propagate=False` emits nothing on purpose.",
        )
    return ProviderTracer(provider)
