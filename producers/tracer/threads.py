"""Threads, timers and the tasks of thread pools keep the OpenTelemetry context that they were started in."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from opentelemetry.context import Context, attach, detach, get_current

T = TypeVar("T")

_plain_start = threading.Thread.start
_plain_submit = ThreadPoolExecutor.submit
_lock = threading.Lock()
_patched = _following = False


def follow_threads() -> None:
    """From now on each thread, and each task of a ``ThreadPoolExecutor``, has the OpenTelemetry context it began in.

    A new thread would otherwise begin outside of every attempt (until Python 3.14, where it inherits). Makes no spans.
    Safe to call again, and where an application has OpenTelemetry's own instrumentation of ``threading``.
    """
    global _patched, _following, _plain_start, _plain_submit
    with _lock:
        _following = True
        if _patched:  # for good, since others may have wrapped what we put there
            return
        _patched = True
        _plain_start, _plain_submit = threading.Thread.start, ThreadPoolExecutor.submit
        threading.Thread.start = _start  # type: ignore[assignment, method-assign]  # what this module is for
        ThreadPoolExecutor.submit = _submit  # type: ignore[assignment, method-assign]  # what this module is for


def leave_threads() -> None:
    """Undo :func:`follow_threads`: threads that start from now on begin without a context. Safe to call again."""
    global _following
    with _lock:
        _following = False


def _in_context(context: Context, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    token = attach(context)
    try:
        return function(*args, **kwargs)
    finally:
        detach(token)


def _start(thread: threading.Thread) -> None:
    if _following and thread.ident is None:
        context, run = get_current(), thread.run

        def run_here() -> None:
            thread.__dict__.pop("run", None)  # a thread that holds itself is not freed at its end
            _in_context(context, run)

        thread.run = run_here  # type: ignore[method-assign]  # of this thread, so that overridden ones count too
    _plain_start(thread)


def _submit(pool: ThreadPoolExecutor, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
    if not _following:
        return _plain_submit(pool, fn, *args, **kwargs)
    return _plain_submit(pool, _in_context, get_current(), fn, *args, **kwargs)
