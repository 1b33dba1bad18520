"""All the processes, and who kills them when."""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from lightstream.runtime.processes import ProcessUnit, Supervisor
from lightstream.runtime.settings import Settings
from lightstream.schemas.records import RolloutState
from lightstream.schemas.topics import ROLLOUTS
from lightstream.up import Stack
from tests.support.log_tail import LogTail
from tests.support.waiting import eventually

DELAY_S_MAX = 0.5
"""A kill comes up to this much after its moment, so that it falls anywhere."""

PROGRESS_TIMEOUT_S = 600.0
SECOND_WORKER = "worker2"


@dataclass(frozen=True, slots=True)
class Kill:
    """SIGKILL of a process, once so many rollouts are over, and a little later."""

    victim: str
    after: int
    delay_s: float


class Scene:
    """What runs."""

    def __init__(self, stack: Stack, second: Supervisor) -> None:
        self._stack = stack
        self._second = second

    @property
    def settings(self) -> Settings:
        return self._stack.settings

    def kill(self, victim: str) -> None:
        """SIGKILL; the victim is started again, and awaited only where the next kill is of the same."""
        if victim == SECOND_WORKER:
            self._second.wait_ready("worker")
            self._second.kill("worker")
        else:
            self._stack.wait_ready(victim)
            self._stack.kill(victim)

    def kill_in_turn(self, kills: Sequence[Kill]) -> None:
        """Carry out ``kills``, each when its moment has come. Blocking."""
        over: set[str] = set()
        began_s = time.monotonic()
        with closing(LogTail(self.settings, ROLLOUTS)) as states:
            for kill in kills:
                eventually(
                    lambda kill=kill: _ended(states, over) >= kill.after,  # type: ignore[misc]  # bound per kill
                    timeout_s=PROGRESS_TIMEOUT_S,
                    what=f"{kill.after} finished rollouts, before the kill of {kill.victim}",
                )
                threading.Event().wait(kill.delay_s)  # the moment is drawn, not waited for
                print(f"kill -9 {kill.victim} {time.monotonic() - began_s:.1f} s after the first: {len(over)} are over")
                self.kill(kill.victim)


@contextmanager
def scene(data_dir: Path, runners: int) -> Generator[Scene]:
    """A broker of our own, two workers, a view, and so many Runner processes; all is ready when this yields."""
    settings = Settings.load(data_dir=data_dir, topic_partitions=4, kafka_bootstrap_servers=None)
    programs = {name: [sys.executable, "-m", "tests.faults.chaos.runner", name] for name in runner_names(runners)}
    second = Supervisor()
    with Stack(settings, services=["worker", "view"], programs=programs) as stack:
        elsewhere = stack.settings.model_copy(update={"data_dir": data_dir / SECOND_WORKER})
        try:
            second.start([ProcessUnit("worker", [sys.executable, "-m", "lightstream.cli", "worker"], elsewhere)])
            yield Scene(stack, second)
        finally:
            second.stop()


def runner_names(count: int) -> list[str]:
    return [f"runner{number}" for number in range(count)]


def drawn_kills(chance: random.Random, *, runners: int, rollouts: int, counts: dict[str, int]) -> list[Kill]:
    """Kills at drawn moments: ``counts`` says how many of ``runner``, ``worker``, ``view`` and ``broker``."""
    choices = {"runner": runner_names(runners), "worker": ["worker", SECOND_WORKER]}
    victims = [chance.choice(choices.get(kind, [kind])) for kind, count in counts.items() for _ in range(count)]
    chance.shuffle(victims)
    moments = sorted(chance.randrange(rollouts) for _ in victims)
    return [
        Kill(victim, after, chance.uniform(0.0, DELAY_S_MAX)) for victim, after in zip(victims, moments, strict=True)
    ]


def _ended(states: LogTail, over: set[str]) -> int:
    for logged in states.poll():
        state = logged.record
        if isinstance(state, RolloutState) and state.status.is_terminal:
            over.add(state.rollout.rollout_id)
    return len(over)
