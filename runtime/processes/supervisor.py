"""One supervisor for every child process: it starts units, starts them again if they end or hang, and stops them."""

from __future__ import annotations

import logging
import operator
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from lightstream.schemas.errors import LightstreamError, ServiceUnavailableError

RESTART_STATUS = 75
"""Exit status (``EX_TEMPFAIL``) of a process that ended itself to be started again: it is at once, however often."""

POLL_INTERVAL_S = 0.02

ASK_INTERVAL_S = 2.0
ASK_TIMEOUT_S = 4.0
ASKS_MIN = 3
"""So many times in a row, at least, nobody answers before a unit counts as hung: one may fall into our own pause."""

logger = logging.getLogger(__name__)


class Unit(Protocol):
    """Something with a process that is started (again), waited for, killed, and at last stopped for good."""

    @property
    def name(self) -> str:
        """Name under which it announces itself."""
        ...

    @property
    def pid(self) -> int | None:
        """Its process while that is ready, else ``None``."""
        ...

    def start(self) -> None:
        """Start it and return once it is ready; raises a LightstreamError (and leaves nothing behind) otherwise."""
        ...

    def look_after(self, why_ended: Callable[[str], None]) -> None:
        """Called every two seconds: announces its process again if somebody removed the announcement.

        Where the process must not run now, it tells ``why_ended`` the reason and ends it in good order; :meth:`start`
        refuses until it may again.
        """
        ...

    def answers(self, timeout_s: float) -> bool:
        """Whether its process, which is ready, answers within this time; true of one that takes no questions."""
        ...

    def wait(self) -> int | None:
        """Block until its process has ended; the exit status where it is known."""
        ...

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone; nothing happens when it does not run."""
        ...

    def stop(self) -> None:
        """End it in good order, also while it starts; nothing happens when it does not run."""
        ...


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """Rule for starting a unit again that ended.

    Attributes:
        backoff_s_min: pause before the first restart; one that was killed once, or that ended itself with
            ``RESTART_STATUS``, is back at once.
        backoff_s_max: the pause doubles up to this, so that a unit that cannot run does not use up a core.
        healthy_after_s: a unit that ran this long starts again with the shortest pause.
        silent_s_max: a unit that does not answer for so long is killed and started again; ``None``: nobody asks.
        ends_in_a_row_max: a unit that ends more often in a row, never healthy in between, is given up; ``None``: never.
    """

    backoff_s_min: float = 0.1
    backoff_s_max: float = 10.0
    healthy_after_s: float = 20.0
    silent_s_max: float | None = None
    ends_in_a_row_max: int | None = None


class Supervisor:
    """Starts units and keeps them running until :meth:`stop`.

    A unit that fails at its *first* start makes :meth:`start` fail. Later a unit that ends, for whatever reason, is
    started again as the policy says: by default as often as it takes.

    A thread that keeps a unit survives a full disk, and all that a start may raise. What else ends it is
    :attr:`failure`: from then on that unit is not kept, and who waits for the units has to end.

    Args:
        on_restart: told of each restart: the unit's name, the number of its restarts, and what had happened. Where it
            raises an OSError, that is logged.
    """

    def __init__(
        self, policy: RestartPolicy | None = None, on_restart: Callable[[str, int, str], None] | None = None
    ) -> None:
        self._policy = policy or RestartPolicy()
        self._on_restart = on_restart
        self._reasons: dict[str, str] = {}
        self._units: dict[str, Unit] = {}
        self._stopping = threading.Event()
        self._restarts: dict[str, int] = {}
        self._given_up: dict[str, int | None] = {}
        self._keepers: list[threading.Thread] = []
        self._failure: ServiceUnavailableError | None = None

    def check(self) -> None:
        """Raise the reason why a unit cannot be kept running.

        Raises:
            ServiceUnavailableError: the thread that keeps it has failed; says of which unit, and why.
        """
        if self._failure is not None:
            raise self._failure

    @property
    def names(self) -> list[str]:
        """Units in starting order."""
        return list(self._units)

    @property
    def restarts(self) -> dict[str, int]:
        """The number of restarts of each unit."""
        return dict(self._restarts)

    @property
    def given_up(self) -> dict[str, int | None]:
        """Units that ended too often in a row and are not started again, with their last exit status."""
        return dict(self._given_up)

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
            for work in (self._keep, *([] if self._policy.silent_s_max is None else [self._watch])):
                keeper = threading.Thread(
                    target=self._guarded, args=(work, unit), name=f"lightstream-keep-{unit.name}", daemon=True
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

    def stop(self, *, together: bool = False) -> None:
        """Stop all units; returns when their processes are gone. May be called twice.

        Args:
            together: all at the same time; else one after the other, the last started first.
        """
        self._stopping.set()
        units = list(reversed(self._units.values()))
        if together and units:
            with ThreadPoolExecutor(len(units), thread_name_prefix="lightstream-stop") as pool:
                list(pool.map(lambda unit: unit.stop(), units))
        else:
            for unit in units:
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

    def _guarded(self, work: Callable[[Unit], None], unit: Unit) -> None:
        try:
            work(unit)
        except Exception as error:  # told by check(): nobody else hears of this thread
            logger.exception("%s is not kept running any more", unit.name)
            failure = ServiceUnavailableError(
                f"{unit.name} cannot be kept running: {type(error).__name__}: {error}.",
                next_step="Start it again; this is a mistake of ours, please report it with the log above.",
            )
            failure.__cause__ = error
            self._failure = self._failure or failure

    def _keep(self, unit: Unit) -> None:
        """Start the unit again whenever it ends, until the supervisor stops."""
        policy, ends = self._policy, 0
        backoff_s = policy.backoff_s_min
        ready_since = time.monotonic()
        while True:
            status = unit.wait()
            if self._stopping.is_set():
                return
            wants_restart = status == RESTART_STATUS
            if wants_restart or time.monotonic() - ready_since > policy.healthy_after_s:
                backoff_s, ends = policy.backoff_s_min, 0
            ends += not wants_restart
            reason = self._reasons.get(unit.name, f"ended (exit status {status})")
            if policy.ends_in_a_row_max is not None and ends > policy.ends_in_a_row_max:
                self._given_up[unit.name] = status
                logger.error("%s ended %d times in a row (exit status %s); it is given up", unit.name, ends, status)
                return
            logger.warning("%s %s; starting it again in %.1f s", unit.name, reason, backoff_s)
            if self._stopping.wait(backoff_s):
                return
            if not wants_restart:
                backoff_s = min(2 * backoff_s, policy.backoff_s_max)
            self._restarts[unit.name] += 1
            self._tell_restart(unit, reason)
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
            self._reasons.pop(unit.name, None)
            logger.warning("%s is back (process %s)", unit.name, unit.pid)

    def _tell_restart(self, unit: Unit, reason: str) -> None:
        if self._on_restart is None:
            return
        try:
            self._on_restart(unit.name, self._restarts[unit.name], reason)
        except OSError as error:
            logger.error("the restart of %s could not be noted: %s", unit.name, error)

    def _look_after(self, unit: Unit, problem: str) -> str:
        """Returns what keeps it from being looked after, which is logged once; empty: nothing."""
        try:
            unit.look_after(partial(operator.setitem, self._reasons, unit.name))
        except (LightstreamError, OSError) as error:
            if str(error) != problem:
                logger.error("%s could not be looked after: %s", unit.name, error)
            return str(error)
        return ""

    def _watch(self, unit: Unit) -> None:
        """End the unit where it hangs or must not run, so that it is started again."""
        pid, heard_s, asks = None, time.monotonic(), 0
        problem = ""
        while not self._stopping.wait(ASK_INTERVAL_S):
            problem = self._look_after(unit, problem)
            if unit.pid is None or unit.pid != pid or unit.answers(ASK_TIMEOUT_S):
                pid, heard_s, asks = unit.pid, time.monotonic(), 0
                continue
            asks += 1
            silent_s = time.monotonic() - heard_s
            if asks >= ASKS_MIN and silent_s > (self._policy.silent_s_max or 0.0) and unit.pid == pid:
                self._reasons[unit.name] = f"did not answer for {silent_s:.0f} s"
                try:
                    unit.kill()
                except LightstreamError as error:
                    logger.error("%s hangs and cannot be killed: %s", unit.name, error)


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
