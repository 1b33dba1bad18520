"""One trace: entered, left, its spans kept together."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from types import TracebackType

from opentelemetry import trace

from ..context import AttemptRef
from .base import Tracer
from .routing import Route, RoutingSpanProcessor
from .running import SPANS_KEPT_MAX, Entered, RunningTrace, TraceRecording, enter_trace, leave_trace, trace_here
from .sinks import SpanSink

logger = logging.getLogger(__name__)

_last_trace: ContextVar[RunningTrace | None] = ContextVar("lightstream_left_trace", default=None)
"""The trace context that this task or thread left last."""


class TraceContext:
    """See :meth:`OtelTracer.trace_context`. Use once.

    Args:
        tracer: whose trace this is.
        spans: what entering gives: an OpenTelemetry tracer whose spans go to ``tracer``.
        processor: gets the route of the attempt's spans.
        attempt: ``None`` where there is none.
        sink: takes the spans.
        enclosing: opens what encloses all spans: one more, as a rule.
        on_left: gets what was kept of the trace.
        flush: on leaving, wait until the spans are durable.
    """

    def __init__(
        self,
        tracer: Tracer,
        spans: trace.Tracer,
        processor: RoutingSpanProcessor,
        attempt: AttemptRef | None,
        sink: SpanSink,
        *,
        enclosing: Callable[[], AbstractContextManager[object]] | None,
        on_left: Callable[[TraceRecording], None],
        flush: bool,
    ) -> None:
        self._spans = spans
        self._processor = processor
        self._attempt = attempt
        self._flush = flush
        self._enclosing = enclosing
        self._on_left = on_left
        self._sink = sink
        self._recording = TraceRecording(attempt)
        self._route = Route(sink, self._recording)
        self._running = RunningTrace(tracer, attempt, self._recording)
        self._entered: Entered | None = None
        self._span_context: AbstractContextManager[object] | None = None

    def __enter__(self) -> trace.Tracer:
        self._entered = enter_trace(self._running)
        if self._attempt is not None:
            self._processor.register(self._attempt, self._route)
        if self._enclosing is not None:
            self._span_context = self._enclosing()
            self._span_context.__enter__()
        return self._spans

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._leave(kind, error, traceback)
        if self._flush:
            self._sink.flush(self._attempt)

    async def __aenter__(self) -> trace.Tracer:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._leave(kind, error, traceback)
        if self._flush:
            await asyncio.to_thread(self._sink.flush, self._attempt)

    def _leave(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if self._span_context is not None:
                self._span_context.__exit__(kind, error, traceback)
        finally:
            if self._attempt is not None:
                self._processor.unregister(self._attempt, self._route)
            if self._entered is not None:
                leave_trace(self._running, self._entered)
            _last_trace.set(self._running)
            self._on_left(self._recording)
            if self._recording.left_out:
                logger.warning(
                    "get_last_trace() holds the first %d spans of this trace; %d more were sent without being kept.",
                    SPANS_KEPT_MAX,
                    self._recording.left_out,
                )


def recording_of(tracer: Tracer, otherwise: TraceRecording | None) -> TraceRecording | None:
    """The recording by ``tracer`` of the trace context that runs here, else of the one that was left here last."""
    for trace_context in (trace_here(), _last_trace.get()):
        if trace_context is not None and trace_context.tracer is tracer:
            return trace_context.recording
    return otherwise
