"""Which tracer emitters use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .running import trace_here

if TYPE_CHECKING:
    from .base import Tracer

__all__ = ["clear_active_tracer", "get_active_tracer", "set_active_tracer"]

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
