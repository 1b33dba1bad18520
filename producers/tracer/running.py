"""The trace that the running code belongs to.

It is in a context variable, which tasks and copied contexts follow, and in OpenTelemetry's context, which its
instrumentation of threads hands to threads and pools. What was handed on is the weaker word: a thread that was started
in one trace may serve others later, so a span's parent goes before it, and it ends with the trace."""

from __future__ import annotations

from contextvars import ContextVar, Token
from dataclasses import dataclass
from typing import TYPE_CHECKING

from opentelemetry import context as otel_context
from opentelemetry.sdk.trace import ReadableSpan

from lightstream.producers import semconv
from lightstream.schemas.types import Span

from ..context import AttemptRef, current_attempt

if TYPE_CHECKING:
    from .base import Tracer

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


@dataclass(slots=True, eq=False)
class RunningTrace:
    """A trace context: its tracer, its attempt, the spans kept of it, and whether it is still open."""

    tracer: Tracer
    attempt: AttemptRef | None
    recording: TraceRecording
    is_open: bool = True


@dataclass(frozen=True, slots=True)
class Entered:
    """State for :func:`leave_trace` to undo."""

    attempt: Token[AttemptRef | None]
    trace: Token[RunningTrace | None]
    otel: Token[otel_context.Context]


_running: ContextVar[RunningTrace | None] = ContextVar("lightstream_running_trace", default=None)
_KEY = otel_context.create_key("lightstream-running-trace")


def trace_here() -> RunningTrace | None:
    """The innermost trace context around the running code, also in a thread that has only OpenTelemetry's context."""
    running = _running.get()
    if running is not None:
        return running
    handed_on = otel_context.get_value(_KEY)
    return handed_on if isinstance(handed_on, RunningTrace) and handed_on.is_open else None


def attempt_here() -> AttemptRef | None:
    """The attempt that the running code belongs to."""
    attempt = current_attempt.get()
    if attempt is not None:
        return attempt
    running = trace_here()
    return None if running is None else running.attempt


def enter_trace(running: RunningTrace) -> Entered:
    """From here on the running code belongs to ``running``."""
    return Entered(
        current_attempt.set(running.attempt),
        _running.set(running),
        otel_context.attach(otel_context.set_value(_KEY, running)),
    )


def leave_trace(running: RunningTrace, entered: Entered) -> None:
    """Return to the state before. Threads that ``running`` was handed to belong to no trace any more."""
    running.is_open = False
    otel_context.detach(entered.otel)
    _running.reset(entered.trace)
    current_attempt.reset(entered.attempt)


_of_process: Tracer | None = None


def set_active_tracer(tracer: Tracer) -> None:
    """Make ``tracer`` the process's, wherever no trace context says otherwise.

    Raises:
        ValueError: there is one already.
    """
    global _of_process
    if _of_process is not None:
        raise ValueError(f"{_of_process!r} is the active tracer already; call clear_active_tracer() first")
    _of_process = tracer


def clear_active_tracer() -> None:
    """Unset the process's active tracer; running trace contexts keep theirs."""
    global _of_process
    _of_process = None


def get_active_tracer() -> Tracer | None:
    """The tracer of the innermost trace context around the running code, else the process's, else ``None``.

    Rollouts that run at once in one process each see their own.
    """
    running = trace_here()
    return _of_process if running is None else running.tracer
