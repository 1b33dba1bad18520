"""The running trace, handed on to threads and pools."""

from __future__ import annotations

from opentelemetry.instrumentation.threading import ThreadingInstrumentor

__all__ = ["follow_threads"]


def follow_threads() -> None:
    """From now on each thread, and each task of a ``ThreadPoolExecutor``, has the OpenTelemetry context it began in.

    By OpenTelemetry's own instrumentation of ``threading``, which makes no spans. A new thread would otherwise begin
    outside of every attempt (until Python 3.14, where it inherits). Safe to call again, and where an application did.
    """
    instrumentor = ThreadingInstrumentor()
    if not instrumentor.is_instrumented_by_opentelemetry:
        instrumentor.instrument()
