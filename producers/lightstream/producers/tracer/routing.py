"""Which span goes to which exporter, as a span of which attempt."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor

from .. import semconv
from ..context import AttemptRef, current_attempt
from ..exporter import KafkaSpanExporter

__all__ = ["RoutingSpanProcessor"]


class RoutingSpanProcessor(SpanProcessor):
    """Marks each span with the attempt it starts in, and hands it to that attempt's exporter when it ends.

    A span belongs to the attempt of the context it starts in; without one (a thread that was started without a copy of
    its context), to the attempt of its parent. Spans of no attempt go to the default exporter. Neither callback waits
    for anything.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._default: KafkaSpanExporter | None = None
        self._by_attempt: dict[AttemptRef, KafkaSpanExporter] = {}

    @property
    def default_exporter(self) -> KafkaSpanExporter | None:
        """Where spans of no known attempt go; ``None`` drops them, as nobody asked for them."""
        return self._default

    def set_default(self, exporter: KafkaSpanExporter | None) -> None:
        """Change the default exporter."""
        self._default = exporter

    def register(self, attempt: AttemptRef, exporter: KafkaSpanExporter) -> None:
        """From now on spans of ``attempt`` go to ``exporter``."""
        with self._lock:
            self._by_attempt[attempt] = exporter

    def unregister(self, attempt: AttemptRef) -> None:
        """Later spans of ``attempt`` go to the default exporter."""
        with self._lock:
            self._by_attempt.pop(attempt, None)

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        attributes = span.attributes or {}
        if semconv.ROLLOUT_ID in attributes:
            return
        attempt = current_attempt.get() or _attempt_in(_parent_attributes(parent_context))
        if attempt is not None:
            span.set_attributes({semconv.ROLLOUT_ID: attempt.rollout_id, semconv.ATTEMPT_ID: attempt.attempt_id})

    def on_end(self, span: ReadableSpan) -> None:
        context = span.get_span_context()
        if context is None or not context.trace_flags.sampled:
            return
        attempt = _attempt_in(span.attributes or {}) or current_attempt.get()
        exporter = self._by_attempt.get(attempt, self._default) if attempt is not None else self._default
        if exporter is not None:
            exporter.submit(span, attempt)

    def shutdown(self) -> None:
        for exporter in self._exporters():
            exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        flushed = [exporter.force_flush(timeout_millis) for exporter in self._exporters()]
        return all(flushed)

    def _exporters(self) -> list[KafkaSpanExporter]:
        with self._lock:
            found = {id(exporter): exporter for exporter in self._by_attempt.values()}
        if self._default is not None:
            found[id(self._default)] = self._default
        return list(found.values())


def _parent_attributes(parent_context: Context | None) -> Mapping[str, Any]:
    parent = trace.get_current_span(parent_context)
    return (parent.attributes or {}) if isinstance(parent, ReadableSpan) else {}


def _attempt_in(attributes: Mapping[str, Any]) -> AttemptRef | None:
    rollout_id, attempt_id = attributes.get(semconv.ROLLOUT_ID), attributes.get(semconv.ATTEMPT_ID)
    return AttemptRef(str(rollout_id), str(attempt_id)) if rollout_id and attempt_id else None
