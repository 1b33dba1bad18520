"""Threads that step back: where the processors are busy, others of the process go first."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

Result = TypeVar("Result")


def run_behind(work: Callable[[], Result], nice: int, name: str) -> Future[Result]:
    """Run ``work`` in a thread of its own, of lower priority. Threads that it starts inherit that.

    A thread cannot get its priority back, so it is not used again. It keeps no process from ending.

    Args:
        nice: how far behind, as of ``nice(1)``: 10 gets a tenth of what a usual thread gets beside it. Linux only;
            elsewhere priority is a matter of whole processes, and stays.

    Returns:
        The result to come.
    """
    done: Future[Result] = Future()

    def main() -> None:
        if nice and sys.platform == "linux":
            here = threading.get_native_id()
            os.setpriority(os.PRIO_PROCESS, here, os.getpriority(os.PRIO_PROCESS, here) + nice)
        try:
            done.set_result(work())
        except BaseException as error:  # noqa: BLE001 - whatever it is, who waits must know it
            done.set_exception(error)

    threading.Thread(target=main, name=name, daemon=True).start()
    return done
