"""All in one process: ``shm``."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Literal

from lightstream.schemas.errors import SettingsError
from lightstream.schemas.interfaces import LightningStore

from ..env_var import LightningEnvVar, resolve_bool_env_var
from .base import AlgorithmBundle, ExecutionStrategy, RunnerBundle, ThreadingEvent, until_stopped

__all__ = ["SharedMemoryExecutionStrategy"]

logger = logging.getLogger(__name__)


class SharedMemoryExecutionStrategy(ExecutionStrategy):
    """The algorithm and each Runner in a thread of its own, one of them in the caller's.

    The end of the algorithm stops the Runners, an error of any stops all. On Ctrl-C all are stopped, and
    ``KeyboardInterrupt`` goes on.

    Args:
        n_runners: how many Runners.
        main_thread: what runs in the caller's thread, for a debugger; ``runner`` with one Runner alone.
        join_timeout: seconds to wait at the end for each thread; those that keep running are abandoned, and logged.
        graceful_delay: seconds that something that is stopped has before it is cancelled.
        poll_interval: seconds that a stop may go unnoticed.
        managed_store: whether the store is checked to be safe for several threads; ``AGL_MANAGED_STORE`` otherwise.
        drain_delay: as ``graceful_delay``, for Runners, whose attempts may finish; by default the same.
    """

    alias = "shm"

    def __init__(
        self,
        n_runners: int = 1,
        main_thread: Literal["algorithm", "runner"] = "runner",
        join_timeout: float = 15.0,
        graceful_delay: float = 5.0,
        poll_interval: float = 0.05,
        managed_store: bool | None = None,
        *,
        drain_delay: float | None = None,
    ) -> None:
        if main_thread not in ("algorithm", "runner"):
            raise ValueError(f"main_thread is {main_thread!r}; it must be 'algorithm' or 'runner'")
        if main_thread == "runner" and n_runners != 1:
            raise ValueError(
                f"n_runners is {n_runners}: the caller's thread can run one Runner. Use main_thread='algorithm'."
            )
        self.n_runners = n_runners
        self.main_thread = main_thread
        self.join_timeout = join_timeout
        self.graceful_delay = graceful_delay
        self.drain_delay = graceful_delay if drain_delay is None else drain_delay
        self.poll_interval = poll_interval
        self.managed_store = resolve_bool_env_var(LightningEnvVar.AGL_MANAGED_STORE, managed_store, True)

    def execute(self, algorithm: AlgorithmBundle, runner: RunnerBundle, store: LightningStore) -> None:
        if self.managed_store and not store.capabilities.get("thread_safe"):
            raise SettingsError(
                f"{type(store).__name__} is not safe for several threads.",
                next_step="Use another store, or managed_store=False if you know better.",
            )
        stop = ThreadingEvent()
        failures: list[BaseException] = []

        def run(make: Callable[[], Coroutine[Any, Any, None]], *, is_last_word: bool) -> None:
            graceful_s = self.graceful_delay if is_last_word else self.drain_delay
            try:
                asyncio.run(until_stopped(make(), stop, look_interval_s=self.poll_interval, graceful_s=graceful_s))
                if is_last_word:
                    stop.set()
            except BaseException as error:  # noqa: BLE001  # raised in the caller's thread at the end
                failures.append(error)
                stop.set()

        def decide() -> None:
            run(lambda: algorithm(store, stop), is_last_word=True)

        def work(worker_id: int) -> None:
            run(lambda: runner(store, worker_id, stop), is_last_word=False)

        if self.main_thread == "algorithm":
            beside = [
                threading.Thread(target=work, args=(worker_id,), name=f"runner-{worker_id}", daemon=True)
                for worker_id in range(self.n_runners)
            ]
        else:
            beside = [threading.Thread(target=decide, name="algorithm", daemon=True)]
        for thread in beside:
            thread.start()
        try:
            if self.main_thread == "algorithm":
                decide()
            else:
                work(0)
                beside[0].join()  # a Runner that has done its part leaves the algorithm to go on
        except KeyboardInterrupt:
            stop.set()
            raise
        finally:
            for thread in beside:
                thread.join(self.join_timeout)
        if running := [thread.name for thread in beside if thread.is_alive()]:
            logger.error("%s still ran %g s after all was stopped; abandoned.", ", ".join(running), self.join_timeout)
        if failures:
            raise failures[0]
