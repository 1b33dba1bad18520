"""Events that say when to stop."""

from __future__ import annotations

import multiprocessing
import threading
from multiprocessing.context import BaseContext
from typing import Protocol

__all__ = ["ExecutionEvent", "MultiprocessingEvent", "ThreadingEvent"]


class ExecutionEvent(Protocol):
    """Says when to stop: a ``threading.Event``, one of ``multiprocessing``, or anything with these methods."""

    def set(self) -> None:
        """Stop. May be called more than once."""
        ...

    def clear(self) -> None:
        """Go on after all."""
        ...

    def is_set(self) -> bool:
        """Whether to stop."""
        ...

    def wait(self, timeout: float | None = None) -> bool:
        """Block until it is set, or for ``timeout`` seconds; returns whether it is set."""
        ...


class ThreadingEvent(threading.Event):
    """For threads of one process."""


class MultiprocessingEvent:
    """For processes that this one starts.

    Args:
        ctx: how these are started; by default as ``multiprocessing`` does.
    """

    def __init__(self, *, ctx: BaseContext | None = None) -> None:
        self._event = (ctx or multiprocessing.get_context()).Event()

    def set(self) -> None:
        self._event.set()

    def clear(self) -> None:
        self._event.clear()

    def is_set(self) -> bool:
        return self._event.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        return self._event.wait(timeout)
