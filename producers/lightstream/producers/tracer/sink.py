"""Where ended spans go."""

from __future__ import annotations

from typing import Protocol

from opentelemetry.sdk.trace import ReadableSpan

from ..context import AttemptRef

__all__ = ["SpanSink"]


class SpanSink(Protocol):
    """Takes ended spans at once, and makes them durable in the background. Thread-safe."""

    def submit(self, span: ReadableSpan, attempt: AttemptRef | None = None) -> bool:
        """Hand one over; returns at once. ``False``: it was rejected."""
        ...

    def flush(self, attempt: AttemptRef | None = None) -> None:
        """Wait until what was handed over (of ``attempt``, or all) is durable.

        Raises:
            PublishError: some of it is lost or still on its way.
        """
        ...

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        """As :meth:`flush`: ``False``, and a logged error, instead of an exception."""
        ...

    def shutdown(self) -> None:
        """Flush, then stop."""
        ...
