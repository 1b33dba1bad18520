"""Runners in their own processes, on the store of a server: ``cs``."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import signal
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from multiprocessing.process import BaseProcess
from typing import Any, Literal

from lightstream.schemas.errors import SettingsError, TrainingError
from lightstream.schemas.interfaces import LightningStore

from ..env_var import LightningEnvVar, resolve_bool_env_var, resolve_int_env_var, resolve_str_env_var
from .base import AlgorithmBundle, ExecutionEvent, ExecutionStrategy, MultiprocessingEvent, RunnerBundle, until_stopped

__all__ = ["ClientServerExecutionStrategy"]

logger = logging.getLogger(__name__)

LOOK_INTERVAL_S = 0.1
"""A stop, or a process that died, may go unnoticed for this long."""

ROLES = ("algorithm", "runner", "both")


class ClientServerExecutionStrategy(ExecutionStrategy):
    """The algorithm with a store server, Runners in processes that are its clients, on this machine or others.

    Processes are forked, so that any agent can be run. The end of the algorithm stops the Runners of this machine; an
    error of any, or the death of a process, stops all. A process that keeps running is terminated, then killed.

    Args:
        role: what runs here: ``algorithm`` (with the server), ``runner``, or ``both``; by default ``AGL_CURRENT_ROLE``,
            else both.
        server_host, server_port: where the store is served; by default ``AGL_SERVER_HOST``, ``AGL_SERVER_PORT``, else
            localhost, 4747.
        n_runners: how many Runners run here. A ``runner`` that is alone runs in this process.
        graceful_timeout: seconds that a stopped part has before it is cancelled, or terminated.
        terminate_timeout: seconds that a terminated process has before it is killed.
        main_process: with ``both``, what runs in this process, for a debugger; ``runner`` with one Runner alone, and
            then what the store in this process holds is unchanged.
        managed_store: whether there is a server, whose clients Runners are; otherwise all are given the store itself,
            which must be a client already. By default ``AGL_MANAGED_STORE``, else yes.
        allowed_exit_codes: of Runner processes; others are errors.
    """

    alias = "cs"

    def __init__(
        self,
        role: Literal["algorithm", "runner", "both"] | None = None,
        server_host: str | None = None,
        server_port: int | None = None,
        n_runners: int = 1,
        graceful_timeout: float = 10.0,
        terminate_timeout: float = 10.0,
        main_process: Literal["algorithm", "runner"] = "algorithm",
        managed_store: bool | None = None,
        allowed_exit_codes: Iterable[int] = (0, -signal.SIGTERM),
    ) -> None:
        self.role = resolve_str_env_var(LightningEnvVar.AGL_CURRENT_ROLE, role, "both")
        if self.role not in ROLES:
            raise ValueError(f"role is {self.role!r}; it must be one of {', '.join(ROLES)}")
        if main_process not in ("algorithm", "runner"):
            raise ValueError(f"main_process is {main_process!r}; it must be 'algorithm' or 'runner'")
        if main_process == "runner" and (self.role != "both" or n_runners != 1):
            raise ValueError(f"main_process='runner' takes role='both' and one Runner, not {self.role!r}, {n_runners}")
        self.n_runners = n_runners
        self.server_host = resolve_str_env_var(LightningEnvVar.AGL_SERVER_HOST, server_host, "localhost")
        self.server_port = resolve_int_env_var(LightningEnvVar.AGL_SERVER_PORT, server_port, 4747)
        self.graceful_timeout = graceful_timeout
        self.terminate_timeout = terminate_timeout
        self.main_process = main_process
        self.managed_store = resolve_bool_env_var(LightningEnvVar.AGL_MANAGED_STORE, managed_store, True)
        self.allowed_exit_codes = tuple(allowed_exit_codes)

    def execute(self, algorithm: AlgorithmBundle, runner: RunnerBundle, store: LightningStore) -> None:
        """As the base class.

        Raises:
            SettingsError: Runners elsewhere cannot use this store as it is.
            TrainingError: a process ended with an exit code that is not allowed; its log says why.
        """
        if not self.managed_store and self.role != "algorithm" and not store.capabilities.get("zero_copy"):
            raise SettingsError(
                f"{type(store).__name__} cannot be used from several processes.",
                next_step="Leave managed_store out, or give a LightningStoreClient.",
            )
        context = multiprocessing.get_context("fork")
        stop = MultiprocessingEvent(ctx=context)
        elsewhere: list[BaseProcess] = []
        runner_ended = MultiprocessingEvent(ctx=context)

        def wait_for_runners() -> None:
            if self.main_process == "runner":
                runner_ended.wait(2 * self.graceful_timeout)
            for process in elsewhere if self.main_process == "algorithm" else ():
                process.join(2 * self.graceful_timeout)

        async def decide() -> None:
            await self._algorithm(algorithm, store, stop, wait_for_runners)

        def work(worker_id: int) -> Callable[[], Coroutine[Any, Any, None]]:
            async def run() -> None:
                await self._runner(runner, store, worker_id, stop)

            return run

        here: Callable[[], Coroutine[Any, Any, None]]
        if self.role == "algorithm":
            here = decide
        elif self.main_process == "runner" or (self.role == "runner" and self.n_runners == 1):
            here = work(0)
            if self.role == "both":
                elsewhere = [context.Process(target=self._in_child, args=(decide, stop, True), name="algorithm")]
        else:
            here = decide if self.role == "both" else _waiting(stop)
            elsewhere = [
                context.Process(target=self._in_child, args=(work(worker_id), stop, False), name=f"runner-{worker_id}")
                for worker_id in range(self.n_runners)
            ]
        for process in elsewhere:
            process.start()
        try:
            asyncio.run(self._watching(here(), elsewhere, stop))
            runner_ended.set()
            if here is not decide and self.role == "both":
                elsewhere[0].join()  # a Runner that has done its part leaves the algorithm to go on
        finally:
            stop.set()
            runner_ended.set()
            self._end(elsewhere)
        if wrong := {p.name: p.exitcode for p in elsewhere if p.exitcode not in self.allowed_exit_codes}:
            raise TrainingError(f"processes failed; their logs say why. Exit codes: {wrong}.")

    async def _watching(
        self, work: Coroutine[Any, Any, None], processes: list[BaseProcess], stop: ExecutionEvent
    ) -> None:
        """Run this process's part; ends when a process dies, or all have ended where nothing else is to be done."""

        def look() -> None:
            codes = [process.exitcode for process in processes]
            if any(code is not None and code not in self.allowed_exit_codes for code in codes):
                stop.set()
            if self.role == "runner" and codes and None not in codes:
                stop.set()

        await until_stopped(work, stop, look_interval_s=LOOK_INTERVAL_S, graceful_s=self.graceful_timeout, look=look)

    def _in_child(
        self, make: Callable[[], Coroutine[Any, Any, None]], stop: ExecutionEvent, is_last_word: bool
    ) -> None:
        """Of a process that was forked: Ctrl-C is the parent's to see, and a parent that is gone ends it."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        parent = multiprocessing.parent_process()

        def look() -> None:
            if parent is not None and not parent.is_alive():
                stop.set()

        try:
            asyncio.run(
                until_stopped(
                    make(), stop, look_interval_s=LOOK_INTERVAL_S, graceful_s=self.graceful_timeout, look=look
                )
            )
        except BaseException:
            stop.set()
            raise
        if is_last_word:
            stop.set()

    def _end(self, processes: list[BaseProcess]) -> None:
        for process in processes:
            process.join(2 * self.graceful_timeout)  # to end by itself, and to be cancelled
        for process in processes:
            if process.is_alive():
                logger.warning("%s still runs after it was stopped; terminating it.", process.name)
                process.terminate()
        for process in processes:
            process.join(self.terminate_timeout)
            if process.is_alive():
                process.kill()
                process.join()

    async def _algorithm(
        self,
        algorithm: AlgorithmBundle,
        store: LightningStore,
        stop: ExecutionEvent,
        wait_for_runners: Callable[[], None],
    ) -> None:
        """The algorithm with its server, which goes on until those Runners have ended whose last words it takes."""
        if not self.managed_store:
            await algorithm(store, stop)
            return
        from ..store import LightningStoreServer

        server = LightningStoreServer(store, self.server_host, self.server_port)
        await server.start()
        try:
            await algorithm(server, stop)
        finally:
            stop.set()
            with suppress(asyncio.CancelledError):  # what the algorithm raised says more
                await asyncio.to_thread(wait_for_runners)
            await server.stop()

    async def _runner(self, runner: RunnerBundle, store: LightningStore, worker_id: int, stop: ExecutionEvent) -> None:
        if not self.managed_store:
            await runner(store, worker_id, stop)
            return
        from ..store import LightningStoreClient

        client = LightningStoreClient(f"http://{self.server_host}:{self.server_port}")
        try:
            await runner(client, worker_id, stop)
        finally:
            await client.close()


def _waiting(stop: ExecutionEvent) -> Callable[[], Coroutine[Any, Any, None]]:
    """Make the work of a process that only waits for its children."""

    async def wait() -> None:
        while not stop.is_set():  # noqa: ASYNC110  # another process sets it
            await asyncio.sleep(LOOK_INTERVAL_S)

    return wait
