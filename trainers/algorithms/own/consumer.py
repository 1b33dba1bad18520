"""An algorithm as a consumer: groups of trajectories in, and each step with its products in one transaction."""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import AsyncGenerator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, aclosing
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import SettingsError
from lightstream.schemas.records import LearningWindow, StepOutcome

from ...ledger.kafka import KafkaLedger
from ...loop.steps import Steps
from ...rollouts.groups import Group, natural_order
from ...rollouts.groups.source import GroupBy, LoggedGroups
from ...rollouts.groups.waiting import RunsRollouts
from ...rollouts.protocol import GroupSource
from ...rollouts.rollouts import Rollouts
from ...rollouts.trajectory_source import TrajectorySource
from ...run.history import History
from ...run.identity import check_same_run, name_of_program
from ...run.lock import RunLock, checked_name
from ...run.progress import Progress
from ...run.run import Run
from .policy import Policy
from .step import Step

__all__ = ["Consumption", "GroupBy", "Opening", "Taken", "trajectories"]

S = TypeVar("S", bound=GroupSource)

MADE_WITH = {"algorithm": "a consumer of trajectories"}
"""A run that another algorithm began is not gone on with."""


async def trajectories(
    run_id: str,
    *,
    trainer_id: str | None = None,
    groups: int = 1,
    group_by: GroupBy | None = None,
    steps: int | None = None,
    policy: Policy | None = None,
    settings: Settings | None = None,
    take_over: bool = False,
    progress: bool = True,
) -> AsyncGenerator[Step]:
    """Take the complete groups of a run as they come, each once, also if this process is killed at any moment.

    Going on with the loop commits the step: what was consumed, the metrics, what was published and the offsets, in one
    Kafka transaction. An exception, or a ``break``, commits nothing of the step, and the next process that consumes
    this run gets its groups again.

    Args:
        run_id: whose trajectories; the ``run_id`` that their rollouts were enqueued with.
        trainer_id: names the consumer across restarts; by default as the program is called. One process per id and per
            run: a second one is refused.
        groups: how many groups make a step.
        group_by: for a trajectory, the name of its group, and with how many members that is complete; ``None``: the
            groups that rollouts were enqueued in (``group_id``, ``group_size``). A name is used once: what comes of a
            group that was consumed is passed over.
        steps: the loop ends once the run has so many, those before a restart included; ``None``: it goes on.
        policy: a model that the body trains: see :class:`Policy`. It is loaded as the last committed step left it.
        settings: ``None`` reads the environment.
        take_over: do not ask whether another process trains this run.
        progress: say what is waited for, and the first errors of the agent.

    Raises:
        TrainingError: another process trains this run, another algorithm began it, or a step was not committed.
        ServiceUnavailableError: Kafka does not answer, or a topic is missing or not for this user; or, with a policy,
            nobody would answer the agents' calls.
    """
    if groups < 1:
        raise SettingsError(f"groups is {groups}; a step has at least 1.")

    def opened(opening: Opening) -> LoggedGroups:
        return LoggedGroups(
            opening.log,
            opening.run_id,
            settled=opening.history.settled,
            limit_s=math.inf,
            enqueue=_nobody,
            progress=opening.progress,
            rollouts=RunsRollouts(opening.settings, opening.run_id),
            group_by=group_by,
        )

    made_with = MADE_WITH | ({} if policy is None else policy.made_with())
    consumed = Consumption(
        run_id,
        trainer_id=trainer_id,
        made_with=made_with,
        policy=policy,
        settings=settings or Settings.load(),
        take_over=take_over,
        progress=Progress(partial(print, flush=True) if progress else None),
    )
    async with aclosing(consumed.steps(opened, lambda source: taken_of(source, groups), steps)) as made:
        async for step in made:
            yield step


def taken_of(source: LoggedGroups, groups: int) -> Taken | None:
    """The next groups of a source, once there are ``groups``."""
    taken = source.next_groups(groups)
    taken.sort(key=lambda group: natural_order(group.group_id))  # and not as they came
    return Taken(tuple(taken)) if taken else None


@dataclass(frozen=True, slots=True)
class Taken:
    """The groups of a step.

    Attributes:
        groups: in the order in which they are used.
        window: of a learner, the window of traffic that these are.
    """

    groups: tuple[Group, ...]
    window: LearningWindow | None = None


@dataclass(frozen=True, slots=True)
class Opening:
    """The parts of a source of groups.

    Attributes:
        log: trajectories, which are not read yet.
        history: of the run.
    """

    settings: Settings
    run_id: str
    log: TrajectorySource
    history: History
    progress: Progress


class Consumption:
    """One process's consumption of trajectories for a run.

    Args:
        run_id, trainer_id, policy, settings, take_over: as for :func:`trajectories`.
        made_with: the run goes on only with the same.
        traffic_of: the run whose trajectories are consumed; ``None``: this one.
    """

    def __init__(
        self,
        run_id: str,
        *,
        trainer_id: str | None,
        made_with: Mapping[str, str],
        policy: Policy | None,
        settings: Settings,
        take_over: bool,
        progress: Progress,
        traffic_of: str | None = None,
    ) -> None:
        self._run_id = checked_name("run_id", run_id)
        self._trainer_id = name_of_program() if trainer_id is None else checked_name("trainer_id", trainer_id)
        self._traffic_of = self._run_id if traffic_of is None else traffic_of
        self._made_with = made_with
        self._policy = policy
        self._settings = settings
        self._take_over = take_over
        self._progress = progress
        self.run: Run | None = None
        """The run, once it is open."""

    async def steps(
        self, open_source: Callable[[Opening], S], take: Callable[[S], Taken | None], steps: int | None
    ) -> AsyncGenerator[Step]:
        """The steps, each committed when the next one is asked for; see :func:`trajectories`.

        Args:
            open_source: makes the source of groups.
            take: waits a moment for the next step's; ``None``: there are none yet. Both run in a thread of their own.
            steps: the loop ends once the run has so many.
        """
        opened, loop, trained = ExitStack(), asyncio.get_running_loop(), False
        thread = ThreadPoolExecutor(1, "lightstream-consumer")  # one: what it closes, it has opened
        policy = self._policy
        try:
            steps_of_run, source = await loop.run_in_executor(thread, partial(self._open, opened, open_source))
            run = self.run = steps_of_run.run
            if policy is not None and (steps is None or run.last_step < steps):
                await policy.open(steps_of_run, partial(loop.run_in_executor, thread))
                trained = True
            while steps is None or run.last_step < steps:
                if policy is not None:
                    await policy.roll_out()
                started, taken = run.now(), None
                while taken is None:
                    taken = await loop.run_in_executor(thread, take, source)
                step = Step(run.last_step + 1, taken.groups, run.resources, _new_record=steps_of_run.resources_record)
                step.window = taken.window
                if policy is not None:
                    policy.enter(step)
                yield step
                if policy is not None:
                    await policy.leave()
                await loop.run_in_executor(thread, _commit, steps_of_run, step, started, steps or 0)
                if policy is not None:
                    await loop.run_in_executor(thread, policy.keep)
                if step.is_last:
                    return
        finally:
            if policy is not None and trained:  # and not by another loop, which goes on
                await policy.close()
            await loop.run_in_executor(thread, partial(opened.__exit__, *sys.exc_info()))
            thread.shutdown()

    def _open(self, opened: ExitStack, open_source: Callable[[Opening], S]) -> tuple[Steps, S]:
        settings, run_id, trainer_id = self._settings, self._run_id, self._trainer_id
        # Before the ledger opens, which fences whoever trains under this id.
        opened.enter_context(RunLock(settings, trainer_id=trainer_id, run_id=run_id, take_over=self._take_over))
        ledger = KafkaLedger(settings, trainer_id=trainer_id, run_id=run_id)
        opened.callback(ledger.close)
        history = ledger.open()
        history.updates.clear()
        check_same_run(run_id, history.made_with, self._made_with)
        log = TrajectorySource(settings, ledger.group_id, run_id=self._traffic_of)
        opened.callback(log.close)
        log.start(history.low_water)
        source = open_source(Opening(settings, run_id, log, history, self._progress))
        run = Run(
            settings=settings,
            run_id=run_id,
            trainer_id=trainer_id,
            history=history,
            seed=0 if self._policy is None else self._policy.seed,
            made_with=self._made_with,
        )
        return Steps(run=run, ledger=ledger, rollouts=Rollouts(run=run, source=source)), source


def _commit(steps: Steps, step: Step, started_unix_nano: int, planned: int) -> None:
    learned = step.learned
    changed = step.published is not None or (learned is not None and learned.changed)
    steps.commit(
        step.number,
        step.groups,
        started_unix_nano=started_unix_nano,
        metrics=step.metrics,
        resources=step.published,
        checkpoint=None if learned is None else learned.checkpoint,
        triplets_used=None if learned is None else learned.triplets_used,
        not_trained=None if learned is None else learned.not_trained,
        outcome=StepOutcome.UPDATED if changed else StepOutcome.UNCHANGED,
        cause="" if learned is None else learned.cause,
        steps=planned,
        window=step.window,
    )
    steps.run.history.updates.clear()  # nothing is made again here


def _nobody(_requests: object) -> None:
    raise AssertionError("a consumer takes all that comes, and requests nothing")
