"""Flush when the process ends, however it ends in Python: interpreter exit, or the end of a multiprocessing child."""

from __future__ import annotations

import atexit
import multiprocessing
import multiprocessing.util
import weakref
from typing import Protocol

__all__ = ["at_process_exit"]

EXIT_PRIORITY = 100
"""Before multiprocessing's own finalizers (they have 10 and less)."""


class _Stoppable(Protocol):
    def shutdown(self) -> None: ...


def at_process_exit(exporter: _Stoppable) -> None:
    """Shut ``exporter`` down when this process ends, unless it is gone by then.

    A multiprocessing child leaves by ``os._exit``, past ``atexit``; it runs multiprocessing's finalizers instead.
    """
    reference = weakref.ref(exporter)

    def shut_down() -> None:
        alive = reference()
        if alive is not None:
            alive.shutdown()

    if multiprocessing.parent_process() is None:
        atexit.register(shut_down)
    else:
        multiprocessing.util.Finalize(None, shut_down, exitpriority=EXIT_PRIORITY)
