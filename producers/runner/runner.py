"""The Runner: several attempts of one agent at once, in one process."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import signal
import socket
import uuid
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from lightstream.runtime.clock import Clock, SystemClock
from lightstream.runtime.http.attempt_keys import attempt_secret
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import LightstreamError
from lightstream.schemas.interfaces import LightningStore
from lightstream.schemas.records import WorkerHeartbeat, WorkerStatus
from lightstream.schemas.types import AttemptedRollout

from ..agent import LitAgent
from ..instrumentation import instrument_as_asked
from ..tracer import OtelTracer
from .attempt import AttemptRunner
from .hooks import Hook

logger = logging.getLogger(__name__)

DEQUEUE_TIMEOUT_S = 1.0
"""One call waits this long for work; an idle Runner takes as long to notice that it should stop."""

DEQUEUE_BACKOFF_S, DEQUEUE_BACKOFF_S_MAX = 0.5, 10.0
"""Between tries while the store does not answer."""

DRAIN_TIMEOUT_S = 30.0
"""Running attempts may take this long to finish after a stop; then they are cancelled and reported as failed."""

HEARTBEATS_PER_LIMIT = 3
"""Two may be lost before silence counts."""


class Runner:
    """Dequeues rollouts, runs the agent on each, makes its spans durable, reports how it ended.

    Args:
        store: the control plane; stays open.
        agent: what to run.
        run_id: run whose rollouts it takes: those of another are left to its own Runners. ``*`` (``ANY_RUN``): of any
            run. Empty, the default: those that belong to no run.
        settings: limits whose rollouts name none; ``None`` reads the environment.
        tracer: routes the agent's spans; by default one of its own, closed at the end of :meth:`run`.
        n_concurrent: attempts at once. Synchronous agents run in threads, asynchronous ones in the loop.
        worker_id: name in the store; by default from host and process.
        hooks: called around each attempt.
        instrument: whose calls become spans (see :func:`instrument`): all libraries, none, or these; by default what
            ``settings.instrument`` says. It stays so when the Runner ends, for others in the process.
        drain_timeout_s: how long running attempts may finish after :meth:`stop`.
        heartbeat_interval_s_max: seconds between two heartbeats, where the limits would allow for more.
        clock: for heartbeats.
    """

    def __init__(
        self,
        store: LightningStore,
        agent: LitAgent[Any],
        *,
        run_id: str = "",
        settings: Settings | None = None,
        tracer: OtelTracer | None = None,
        n_concurrent: int = 1,
        worker_id: str | None = None,
        hooks: Sequence[Hook] = (),
        instrument: bool | Sequence[str] | None = None,
        drain_timeout_s: float = DRAIN_TIMEOUT_S,
        heartbeat_interval_s_max: float | None = None,
        clock: Clock | None = None,
    ) -> None:
        if n_concurrent < 1:
            raise ValueError(f"n_concurrent is {n_concurrent}; at least 1 is needed")
        self._store = store
        self._agent = agent
        self._run_id = run_id
        agent.set_runner(self)
        self._settings = settings or Settings.load()
        self._tracer = tracer
        self._n_concurrent = n_concurrent
        self.worker_id = worker_id or f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:6]}"
        self._hooks = hooks
        self._instrument = self._settings.instrument if instrument is None else instrument
        self._idle_limit_s = self._settings.rollout_unresponsive_s
        self._drain_timeout_s = drain_timeout_s
        self._heartbeat_interval_s_max = math.inf if heartbeat_interval_s_max is None else heartbeat_interval_s_max
        self._clock = clock or SystemClock()
        self._running: dict[tuple[str, str], AttemptedRollout] = {}
        self._hurried = asyncio.Event()  # made anew by run: one of another loop cannot be waited for
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._stop_asked = False
        self._remaining: int | None = None
        self._finished = 0

    async def run(self, max_rollouts: int | None = None) -> int:
        """Work until :meth:`stop`, or until ``max_rollouts`` attempts were run; returns how many were.

        Attempts that run when it stops may finish within ``drain_timeout_s``; then they are cancelled and reported as
        failed, and the life cycle retries them by their policy.

        Raises:
            SettingsError: there is no such instrumentor, or OpenTelemetry is switched off; nothing was taken.
        """
        instrument_as_asked(self._instrument)
        stopping = asyncio.Event()
        self._loop, self._stopping, self._hurried = asyncio.get_running_loop(), stopping, asyncio.Event()
        if self._stop_asked:
            stopping.set()
        self._remaining, self._finished = max_rollouts, 0
        tracer = self._tracer or OtelTracer(self._settings)
        attempts = AttemptRunner(
            self,
            self._store,
            self._agent,
            tracer,
            self._hooks,
            default_timeout_s=self._settings.rollout_timeout_s,
            secret=await asyncio.to_thread(attempt_secret, self._settings) if self._settings.tokens_file else None,
        )
        heart = asyncio.create_task(self._beat())
        slots = [asyncio.create_task(self._work(attempts, stopping)) for _ in range(self._n_concurrent)]
        try:
            await self._until_done(slots, stopping)
        finally:
            heart.cancel()
            for slot in slots:
                slot.cancel()
            await asyncio.gather(heart, *slots, return_exceptions=True)
            await self._send_heartbeat(WorkerStatus.STOPPED)
            if self._tracer is None:
                await asyncio.to_thread(tracer.close)
        for task in (heart, *slots):
            if not task.cancelled() and (error := task.exception()) is not None:
                raise error
        return self._finished

    def run_forever(self, max_rollouts: int | None = None) -> int:
        """As :meth:`run`, for a process that does nothing else. SIGTERM and Ctrl-C stop it in order."""

        async def with_signals() -> int:
            with _signals(self.stop):
                return await self.run(max_rollouts)

        return asyncio.run(with_signals())

    def stop(self) -> None:
        """Take no further rollouts and let the running ones end. From any thread or signal handler; returns at once."""
        self._stop_asked = True
        loop, stopping = self._loop, self._stopping
        if loop is not None and stopping is not None and not loop.is_closed():
            loop.call_soon_threadsafe(stopping.set)

    @property
    def running(self) -> list[AttemptedRollout]:
        """The attempts that run now."""
        return list(self._running.values())

    async def _until_done(self, slots: list[asyncio.Task[None]], stopping: asyncio.Event) -> None:
        stopped = asyncio.create_task(stopping.wait())
        try:
            pending: set[asyncio.Task[Any]] = {*slots}
            while pending and not stopped.done():
                done, _ = await asyncio.wait({*pending, stopped}, return_when=asyncio.FIRST_COMPLETED)
                pending -= done
                if any(slot.exception() for slot in done if slot is not stopped and not slot.cancelled()):
                    return
            if pending:
                await asyncio.wait(pending, timeout=self._drain_timeout_s)
        finally:
            stopped.cancel()

    async def _work(self, attempts: AttemptRunner, stopping: asyncio.Event) -> None:
        """One slot: take, run, again."""
        while (rollout := await self._next(stopping)) is not None:
            key = (rollout.rollout_id, rollout.attempt.attempt_id)
            self._running[key] = rollout
            if (rollout.config.unresponsive_seconds or self._idle_limit_s) < self._idle_limit_s:
                self._hurried.set()
            try:
                # A task of its own, so that each attempt has a context of its own.
                await asyncio.create_task(attempts.run(rollout), name=rollout.attempt.attempt_id)
            finally:
                del self._running[key]
                self._finished += 1

    async def _next(self, stopping: asyncio.Event) -> AttemptedRollout | None:
        """The next rollout to run, or ``None`` when there is nothing more to do."""
        if self._remaining is not None:
            if self._remaining <= 0:
                return None
            self._remaining -= 1
        backoff_s = DEQUEUE_BACKOFF_S
        while not stopping.is_set():
            try:
                rollout = await self._store.dequeue_rollout(
                    self.worker_id, timeout_s=DEQUEUE_TIMEOUT_S, run_id=self._run_id
                )
            except LightstreamError as error:
                logger.warning("no rollout could be taken, trying again in %g s: %s", backoff_s, error)
                await _pause(stopping, backoff_s)
                backoff_s = min(2 * backoff_s, DEQUEUE_BACKOFF_S_MAX)
                continue
            if rollout is not None:
                return rollout
        return None

    async def _beat(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            sent = loop.time()
            await self._send_heartbeat(WorkerStatus.BUSY if self._running else WorkerStatus.IDLE)
            while (left_s := sent + self._heartbeat_interval_s() - loop.time()) > 0:
                self._hurried.clear()
                with suppress(TimeoutError):  # a rollout taken meanwhile may allow for less silence
                    await asyncio.wait_for(self._hurried.wait(), left_s)

    def _heartbeat_interval_s(self) -> float:
        limits = [r.config.unresponsive_seconds for r in self._running.values() if r.config.unresponsive_seconds]
        return min(self._heartbeat_interval_s_max, min([self._idle_limit_s, *limits]) / HEARTBEATS_PER_LIMIT)

    async def _send_heartbeat(self, status: WorkerStatus) -> None:
        attempts = list(self._running)
        worker = WorkerHeartbeat(
            worker_id=self.worker_id,
            kind="runner",
            host=socket.gethostname(),
            pid=os.getpid(),
            status=status,
            rollout_ids=[rollout_id for rollout_id, _ in attempts],
            attempt_ids=[attempt_id for _, attempt_id in attempts],
            heartbeat_unix_nano=self._clock.now_unix_nano(),
        )
        try:
            await self._store.heartbeat(worker, attempts)
        except LightstreamError as error:
            logger.warning("a heartbeat was not accepted: %s", error)


@contextmanager
def _signals(stop: Callable[[], None]) -> Generator[None]:
    """SIGTERM and SIGINT call ``stop``; the second of the same kind does what it did before."""
    loop = asyncio.get_running_loop()
    handled = (signal.SIGTERM, signal.SIGINT)

    def once(number: signal.Signals) -> None:
        loop.remove_signal_handler(number)
        stop()

    for number in handled:
        loop.add_signal_handler(number, once, number)
    try:
        yield
    finally:
        for number in handled:
            loop.remove_signal_handler(number)


async def _pause(stopping: asyncio.Event, seconds: float) -> None:
    """Sleep, unless asked to stop."""
    with suppress(TimeoutError):
        await asyncio.wait_for(stopping.wait(), seconds)
