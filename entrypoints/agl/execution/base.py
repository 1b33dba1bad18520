"""Execution strategies, the events that stop them, and the ends of their parts."""

from __future__ import annotations

import asyncio
import multiprocessing
import threading
from collections.abc import Callable, Coroutine
from multiprocessing.context import BaseContext
from typing import Any, Protocol

from lightstream.schemas.interfaces import LightningStore

__all__ = [
    "AlgorithmBundle",
    "ExecutionEvent",
    "ExecutionStrategy",
    "MultiprocessingEvent",
    "RunnerBundle",
    "ThreadingEvent",
    "until_stopped",
]


class ExecutionEvent(Protocol):
    """Says when to stop: a ``threading.Event``, one of ``multiprocessing``, or anything with these methods."""

    def set(self) -> None:
        """Stop. May be called more than once."""
        ...

    def clear(self) -> None:
        """Go on after all."""
        ...

    def is_set(self) -> bool:
        """Return whether to stop."""
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


class AlgorithmBundle(Protocol):
    """The algorithm, ready to run on a store."""

    async def __call__(self, store: LightningStore, event: ExecutionEvent) -> None:
        """Run to the end, or until ``event`` is set."""
        ...


class RunnerBundle(Protocol):
    """A Runner with its agent, ready to run on a store."""

    async def __call__(self, store: LightningStore, worker_id: int, event: ExecutionEvent) -> None:
        """Run until ``event`` is set, or the Runner is done."""
        ...


class ExecutionStrategy:
    """Starts an algorithm and its Runners, somewhere, and ends them in order. Override :meth:`execute`."""

    def execute(self, algorithm: AlgorithmBundle, runner: RunnerBundle, store: LightningStore) -> None:
        """Run both on ``store``; returns when they are over.

        Raises:
            Exception: what the algorithm or a Runner raised; the others were stopped.
        """
        raise NotImplementedError(f"{type(self).__name__} must have an execute method")


async def until_stopped(
    work: Coroutine[Any, Any, None],
    event: ExecutionEvent,
    *,
    look_interval_s: float,
    graceful_s: float,
    look: Callable[[], None] | None = None,
) -> None:
    """Run ``work``; once ``event`` is set it has ``graceful_s`` to end by itself, and as long again when cancelled.

    Args:
        look: called every ``look_interval_s``; may set the event.

    Raises:
        Exception: what ``work`` raised.
    """
    task = asyncio.ensure_future(work)
    try:
        while not task.done() and not event.is_set():
            await asyncio.wait({task}, timeout=look_interval_s)
            if look is not None:
                look()
        if not task.done():
            await asyncio.wait({task}, timeout=graceful_s)
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=graceful_s)
    if task.done() and not task.cancelled():
        task.result()
