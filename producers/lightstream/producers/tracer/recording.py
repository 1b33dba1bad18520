"""What a tracer remembers of its latest trace."""

from __future__ import annotations

from opentelemetry.sdk.trace import ReadableSpan

from lightstream.schemas.types import Span

from .. import semconv
from ..context import AttemptRef

__all__ = ["SPANS_KEPT_MAX", "TraceRecording"]

SPANS_KEPT_MAX = 16384
"""Of one trace, for ``get_last_trace()``: 10 MB of small spans. The log has all of them, whatever is kept here."""

NO_ROLLOUT, NO_ATTEMPT = "rollout-dummy", "attempt-dummy"
"""Agent Lightning's names for spans of no attempt: a :class:`Span` needs some."""


class TraceRecording:
    """The ended spans of one trace context, in the order in which they ended. Thread-safe.

    Attributes:
        left_out: spans beyond :data:`SPANS_KEPT_MAX`.
    """

    def __init__(self, attempt: AttemptRef | None) -> None:
        self._attempt = attempt
        self._ended: list[ReadableSpan | Span] = []
        self.left_out = 0

    def add(self, span: ReadableSpan | Span) -> None:
        """Keep a span that has ended. Takes a microsecond: nothing is copied."""
        if len(self._ended) < SPANS_KEPT_MAX:
            self._ended.append(span)
        else:
            self.left_out += 1

    def spans(self) -> list[Span]:
        """The spans so far, numbered 1, 2, …; each a copy of the caller's own."""
        attempt = self._attempt or AttemptRef(NO_ROLLOUT, NO_ATTEMPT)
        return [
            span.model_copy(deep=True) if isinstance(span, Span) else _as_span(span, attempt, number)
            for number, span in enumerate(list(self._ended), 1)
        ]


def _as_span(ended: ReadableSpan, attempt: AttemptRef, number: int) -> Span:
    span = Span.from_opentelemetry(ended, attempt.rollout_id, attempt.attempt_id, number)
    for name in (semconv.ROLLOUT_ID, semconv.ATTEMPT_ID):  # the span has fields for them
        span.attributes.pop(name, None)
    return span
