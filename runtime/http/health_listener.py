"""Health at a port of its own, answered by a thread of its own: a busy event loop is not taken for a dead process."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import uvicorn
from starlette.applications import Starlette

from ..health import Check, WithHealth
from ..listening import bind_listener, url_of
from ..metrics import Readings
from .connections import LimitedConnection

TURN_TIMEOUT_S = 2.0
"""Shorter than whoever asks for health waits for the answer."""
BUSY_S_MAX = 300.0
"""A loop that has computed for so long without a turn is in an endless one."""
BUSY_SHARE_MIN = 0.5
"""Of the time since the last question, that a busy thread has computed or waited for a processor."""
NANOS_PER_SECOND = 1_000_000_000
STOP_TIMEOUT_S = 5.0


class LoopTurns:
    """Says why an event loop is dead (:data:`lightstream.runtime.health.Check`): it does not turn, nor computes.

    One that computes, or waits for a processor on a machine with too much to do, is busy, which may last for five
    minutes. To be made on the loop's own thread.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._thread = threading.get_native_id()
        self._asking = threading.Lock()
        self._turned_s = time.monotonic()
        self._last_sample = (self._turned_s, self._busy_s())

    def __call__(self) -> str | None:
        """Let it turn once, and wait two seconds for that."""
        with self._asking:
            before_s, busy_before_s = self._last_sample
            has_turned = self._turns()
            now_s = time.monotonic()
            self._last_sample = (now_s, self._busy_s())
            if has_turned:
                self._turned_s = now_s
                return None
            still_s = now_s - self._turned_s
            is_busy = self._last_sample[1] - busy_before_s > BUSY_SHARE_MIN * (now_s - before_s)
            if is_busy and still_s < BUSY_S_MAX:
                return None
            return f"the event loop has not turned for {still_s:.0f} s"

    def _turns(self) -> bool:
        turned = threading.Event()
        try:
            self._loop.call_soon_threadsafe(turned.set)
        except RuntimeError:
            return False  # it is closed
        return turned.wait(TURN_TIMEOUT_S)

    def _busy_s(self) -> float:
        """Seconds for which the thread has computed or waited for a processor (``/proc/PID/task/TID/schedstat``)."""
        try:
            computed, waited, _ = Path(f"/proc/self/task/{self._thread}/schedstat").read_text("ascii").split()
        except (OSError, ValueError):
            return time.process_time()
        return (int(computed) + int(waited)) / NANOS_PER_SECOND


class HealthListener:
    """Answers ``/healthz``, ``/readyz`` and ``/metrics`` on loopback, at any free port, until :meth:`stop`.

    Args:
        name: of the server, in its metrics.
        alive, ready, metrics: as :class:`lightstream.runtime.health.WithHealth` has them.

    Raises:
        ServiceUnavailableError: there is no free port.
    """

    def __init__(self, name: str, alive: Sequence[Check], ready: Sequence[Check], metrics: Sequence[Readings]) -> None:
        self._name = name
        self._alive = list(alive)
        self._socket: socket.socket = bind_listener("127.0.0.1", 0, "")
        self.url = url_of(self._socket)
        app = WithHealth(Starlette(), name=name, alive=self._reason, ready=ready, metrics=metrics)
        config = uvicorn.Config(
            app, http=LimitedConnection, log_level="warning", access_log=False, server_header=False, lifespan="off"
        )
        self._server = uvicorn.Server(config)
        self._thread: threading.Thread | None = None

    def start(self, turns: Check) -> None:
        """Answer from now on.

        Args:
            turns: says why the process's event loop is dead.
        """
        self._alive.append(turns)
        run = threading.Thread(
            target=self._server.run, args=([self._socket],), name=f"lightstream-health-{self._name}", daemon=True
        )
        self._thread = run
        run.start()

    def stop(self) -> None:
        """Answer no more. Safe to call twice, and where it was never started."""
        self._server.should_exit = True
        if self._thread is not None:
            self._thread.join(STOP_TIMEOUT_S)
        self._socket.close()

    def _reason(self) -> str | None:
        return next((reason for check in self._alive if (reason := check()) is not None), None)
