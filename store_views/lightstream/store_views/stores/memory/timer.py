"""A thread that fires deadlines by themselves, also while nobody calls."""

from __future__ import annotations

import threading
import weakref

from lightstream.runtime.clock import NANOS_PER_SECOND, Clock

from .log import MemoryLog

__all__ = ["Timer"]

LOOK_INTERVAL_S_MAX = 1.0
"""How long it sleeps at most: a clock may jump, a store may be forgotten without being closed."""


class Timer:
    """Fires what is due in a log. The thread ends with :meth:`stop`, or when the log is garbage."""

    def __init__(self, log: MemoryLog, clock: Clock) -> None:
        self._stopping = threading.Event()
        self._watched = log.watched
        arguments = (weakref.ref(log), clock, log.watched, self._stopping)
        self._thread = threading.Thread(target=_run, args=arguments, name="lightstream-deadlines", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stopping.set()
        self._watched.set()
        self._thread.join()


def _run(reference: weakref.ref[MemoryLog], clock: Clock, watched: threading.Event, stopping: threading.Event) -> None:
    while not stopping.is_set():
        watched.clear()
        log = reference()
        if log is None:
            return
        due_unix_nano = log.fire_due()
        del log
        wait_s = LOOK_INTERVAL_S_MAX
        if due_unix_nano is not None:
            wait_s = min(wait_s, max(0.001, (due_unix_nano - clock.now_unix_nano()) / NANOS_PER_SECOND))
        watched.wait(wait_s)
