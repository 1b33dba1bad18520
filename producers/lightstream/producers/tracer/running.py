"""The trace that the running code belongs to.

It is in a context variable, which tasks and copied contexts follow, and in OpenTelemetry's context, which its
instrumentation of threads hands to threads and pools. What was handed on is the weaker word: a thread that was started
in one trace may serve others later, so a span's parent goes before it, and it ends with the trace.
"""

from __future__ import annotations

from contextvars import ContextVar, Token
from dataclasses import dataclass
from typing import TYPE_CHECKING

from opentelemetry import context as otel_context

from ..context import AttemptRef, current_attempt
from .recording import TraceRecording

if TYPE_CHECKING:
    from .base import Tracer

__all__ = ["RunningTrace", "attempt_here", "enter_trace", "leave_trace", "trace_here"]


@dataclass(slots=True, eq=False)
class RunningTrace:
    """A trace context: by which tracer, for which attempt, what is kept of it, and whether it has not been left."""

    tracer: Tracer
    attempt: AttemptRef | None
    recording: TraceRecording
    is_open: bool = True


@dataclass(frozen=True, slots=True)
class Entered:
    """What :func:`leave_trace` undoes."""

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
    """Back to what was before. Threads that ``running`` was handed to belong to no trace any more."""
    running.is_open = False
    otel_context.detach(entered.otel)
    _running.reset(entered.trace)
    current_attempt.reset(entered.attempt)
