"""Route each ended span to the sink of its attempt."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor

from .. import semconv
from ..context import AttemptRef, current_attempt
from .running import TraceRecording, attempt_here, trace_here
from .sinks import SpanSink


@dataclass(frozen=True, slots=True, eq=False)
class Route:
    """Sink and recording of the spans of one trace context."""

    sink: SpanSink
    recording: TraceRecording


class RoutingSpanProcessor(SpanProcessor):
    """Marks each span with the attempt it starts in, and hands it to that attempt's sink when it ends.

    A span belongs to the attempt of the context it starts in; without one (in a thread), to the attempt of its parent;
    without that, to the attempt that was handed to its thread. Spans of no attempt go to the default sink. Neither
    callback waits for anything.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._default: SpanSink | None = None
        self._routes: dict[AttemptRef, list[Route]] = {}

    @property
    def default_sink(self) -> SpanSink | None:
        """The sink of spans without a known attempt; ``None`` drops them."""
        return self._default

    def set_default(self, sink: SpanSink | None) -> None:
        """Change the default sink."""
        self._default = sink

    def register(self, attempt: AttemptRef, route: Route) -> None:
        """From now on spans of ``attempt`` take ``route``, until it is unregistered."""
        with self._lock:
            self._routes[attempt] = [*self._routes.get(attempt, []), route]

    def unregister(self, attempt: AttemptRef, route: Route) -> None:
        """Spans of ``attempt`` take the route that they took before, or go to the default sink."""
        with self._lock:
            remaining = [other for other in self._routes.get(attempt, []) if other is not route]
            if remaining:
                self._routes[attempt] = remaining
            else:
                self._routes.pop(attempt, None)

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        attributes = span.attributes or {}
        if semconv.ROLLOUT_ID in attributes:
            return
        attempt = current_attempt.get() or _attempt_in(_parent_attributes(parent_context)) or attempt_here()
        if attempt is not None:
            span.set_attributes({semconv.ROLLOUT_ID: attempt.rollout_id, semconv.ATTEMPT_ID: attempt.attempt_id})

    def on_end(self, span: ReadableSpan) -> None:
        context = span.get_span_context()
        if context is None or not context.trace_flags.sampled:
            return
        attempt = _attempt_in(span.attributes or {}) or attempt_here()
        routes = self._routes.get(attempt) if attempt is not None else None
        if routes:
            routes[-1].recording.add(span)
            sink: SpanSink | None = routes[-1].sink
        else:
            running = trace_here()
            if running is not None and running.attempt is None and attempt is None:
                running.recording.add(span)
            sink = self._default
        if sink is not None:
            sink.submit(span, attempt)

    def shutdown(self) -> None:
        for sink in self._sinks():
            sink.shutdown()

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        flushed = [sink.force_flush(timeout_millis) for sink in self._sinks()]
        return all(flushed)

    def _sinks(self) -> list[SpanSink]:
        with self._lock:
            found = {id(route.sink): route.sink for routes in self._routes.values() for route in routes}
        if self._default is not None:
            found[id(self._default)] = self._default
        return list(found.values())


def _parent_attributes(parent_context: Context | None) -> Mapping[str, Any]:
    parent = trace.get_current_span(parent_context)
    return (parent.attributes or {}) if isinstance(parent, ReadableSpan) else {}


def _attempt_in(attributes: Mapping[str, Any]) -> AttemptRef | None:
    rollout_id, attempt_id = attributes.get(semconv.ROLLOUT_ID), attributes.get(semconv.ATTEMPT_ID)
    return AttemptRef(str(rollout_id), str(attempt_id)) if rollout_id and attempt_id else None
