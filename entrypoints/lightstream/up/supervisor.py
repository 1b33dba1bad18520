"""Keeps units running: starts them, restarts what dies, stops them in order."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait

from lightstream.schemas.errors import LightstreamError, ServiceUnavailableError

from .unit import Unit

__all__ = ["Supervisor"]

BACKOFF_S_MIN = 0.1
"""A process that was killed once is back at once."""

BACKOFF_S_MAX = 10.0
"""One that cannot run does not eat a core."""

HEALTHY_AFTER_S = 20.0
"""A process that ran this long starts again with the shortest back-off."""

POLL_INTERVAL_S = 0.02

logger = logging.getLogger(__name__)


class Supervisor:
    """Starts units and keeps them running until :meth:`stop`.

    A unit that fails at its *first* start makes :meth:`start` fail. Later a unit that ends, for whatever reason, is
    started again with a back-off, as often as it takes.
    """

    def __init__(self) -> None:
        self._units: dict[str, Unit] = {}
        self._stopping = threading.Event()
        self._restarts: dict[str, int] = {}
        self._keepers: list[threading.Thread] = []

    @property
    def names(self) -> list[str]:
        """Units in starting order."""
        return list(self._units)

    @property
    def restarts(self) -> dict[str, int]:
        """The number of restarts of each unit."""
        return dict(self._restarts)

    def pid(self, name: str) -> int | None:
        """Process id of a unit that is ready, else ``None``."""
        return self._unit(name).pid

    def start(self, units: Sequence[Unit]) -> None:
        """Start these units at once and return when all are ready. May be called again with units that need those.

        Raises:
            LightstreamError: one could not be started; the others of this call are stopped again.
        """
        self._units |= {unit.name: unit for unit in units}
        self._restarts |= dict.fromkeys((unit.name for unit in units), 0)
        try:
            if len(units) == 1:
                units[0].start()  # on this thread, so that Ctrl-C interrupts it
            else:
                _start_together(units)
        except BaseException:
            for unit in units:
                unit.stop()
            raise
        for unit in units:
            keeper = threading.Thread(
                target=self._keep, args=(unit,), name=f"lightstream-keep-{unit.name}", daemon=True
            )
            keeper.start()
            self._keepers.append(keeper)

    def kill(self, name: str) -> None:
        """``kill -9`` a unit; it is gone when this returns, and will be started again."""
        self._unit(name).kill()

    def wait_ready(self, name: str, timeout_s: float = 120.0) -> None:
        """Wait until a unit (started again) is ready.

        Raises:
            ServiceUnavailableError: it is not within ``timeout_s`` seconds.
        """
        unit = self._unit(name)
        deadline = time.monotonic() + timeout_s
        while unit.pid is None:
            if time.monotonic() > deadline or self._stopping.wait(POLL_INTERVAL_S):
                raise ServiceUnavailableError(
                    f"{name} was not ready within {timeout_s:g} s; it was started again {self._restarts[name]} times.",
                    next_step="Its log says why.",
                )

    def stop(self) -> None:
        """Stop all units, the last started first; returns when their processes are gone. May be called twice."""
        self._stopping.set()
        for unit in reversed(self._units.values()):
            unit.stop()
        for keeper in self._keepers:
            keeper.join()
        self._keepers.clear()

    def _unit(self, name: str) -> Unit:
        try:
            return self._units[name]
        except KeyError:
            raise ServiceUnavailableError(
                f"{name!r} is not supervised here; these are: {', '.join(self._units) or 'none'}."
            ) from None

    def _keep(self, unit: Unit) -> None:
        """Start the unit again whenever it ends, until the supervisor stops."""
        backoff_s = BACKOFF_S_MIN
        ready_since = time.monotonic()
        while True:
            status = unit.wait()
            if self._stopping.is_set():
                return
            if time.monotonic() - ready_since > HEALTHY_AFTER_S:
                backoff_s = BACKOFF_S_MIN
            logger.warning("%s ended (exit status %s); starting it again in %.1f s", unit.name, status, backoff_s)
            if self._stopping.wait(backoff_s):
                return
            backoff_s = min(2 * backoff_s, BACKOFF_S_MAX)
            self._restarts[unit.name] += 1
            ready_since = time.monotonic()
            try:
                unit.start()
            except (LightstreamError, OSError) as error:
                if not self._stopping.is_set():
                    logger.error("%s could not be started again: %s", unit.name, error)
                continue
            if self._stopping.is_set():
                unit.stop()
                return
            logger.warning("%s is back (process %s)", unit.name, unit.pid)


def _start_together(units: Sequence[Unit]) -> None:
    pool = ThreadPoolExecutor(max(1, len(units)), thread_name_prefix="lightstream-start")
    try:
        done, _ = wait([pool.submit(unit.start) for unit in units], return_when=FIRST_EXCEPTION)
        for start in done:
            start.result()
    except BaseException:
        for unit in units:
            unit.stop()  # ends the starts that are still under way
        raise
    finally:
        pool.shutdown()
