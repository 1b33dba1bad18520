"""An algorithm as a consumer: groups of trajectories in, and each step with what it made in one transaction."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import SettingsError
from lightstream.schemas.records import ResourcesRecord, StepOutcome, Trajectory
from lightstream.schemas.types import NamedResources, RolloutConfig

from ...ledger.kafka import KafkaLedger
from ...loop.context import AlgorithmContext
from ...rollouts.groups import Group, natural_order
from ...rollouts.groups.source import GroupBy, LoggedGroups
from ...rollouts.groups.waiting import RunsRollouts
from ...rollouts.trajectory_source import TrajectorySource
from ...run.identity import check_same_run, name_of_program
from ...run.lock import RunLock, checked_name
from ...run.progress import Progress
from ...servers.following import NoServers

if TYPE_CHECKING:
    from .policy import Learned, Policy

__all__ = ["GroupBy", "Step", "trajectories"]

MADE_WITH = {"algorithm": "a consumer of trajectories"}
"""A run that another algorithm began is not gone on with."""


@dataclass(slots=True)
class Step:
    """A step that is being made. What is put into it becomes visible together, once the loop's body is left.

    Attributes:
        number: 1, 2, …; restarts count on.
        groups: what it consumes, in the natural order of their names, as the rollouts within each.
        resources: the run's latest; ``None`` before the first. Rollouts should be enqueued with its ``resources_id``.
        metrics: numbers to keep with the step; finite ones are kept.
        published: what :meth:`publish` made.
        learned: what a policy learned of it; ``None`` without one.
        is_last: whether :meth:`stop` was called.
    """

    number: int
    groups: tuple[Group, ...]
    resources: ResourcesRecord | None
    metrics: dict[str, float] = field(default_factory=dict[str, float])
    published: ResourcesRecord | None = field(default=None, init=False)
    learned: Learned | None = field(default=None, init=False)
    is_last: bool = field(default=False, init=False)
    _new_record: Callable[..., ResourcesRecord] = field(kw_only=True, repr=False)

    @property
    def trajectories(self) -> list[Trajectory]:
        """Those of all groups."""
        return [trajectory for group in self.groups for trajectory in group.trajectories]

    def publish(
        self, resources: NamedResources, *, model: str | None = None, checkpoint: Path | None = None
    ) -> ResourcesRecord:
        """Make this the run's next version, ``<run_id>-v<version>``. Nobody sees it before the step is committed.

        Args:
            resources: what agents are given, by name.
            model: the name that the weights are served under, for example ``policy@7``.
            checkpoint: the folder of the weights, already on the disk; model servers load it.
        """
        version = 0 if self.resources is None else self.resources.version + 1
        self.published = self._new_record(version, resources, model=model, checkpoint=checkpoint)
        return self.published

    def stop(self) -> None:
        """End the loop after this step. It is committed, which it is not after a ``break``."""
        self.is_last = True


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
    trainer_id = name_of_program() if trainer_id is None else checked_name("trainer_id", trainer_id)
    settings = settings or Settings.load()
    opened, loop, trained = ExitStack(), asyncio.get_running_loop(), False
    thread = ThreadPoolExecutor(1, "lightstream-consumer")  # one: what it closes, it has opened
    try:
        context, source = await loop.run_in_executor(
            thread,
            partial(
                _open,
                opened,
                settings,
                trainer_id=trainer_id,
                run_id=checked_name("run_id", run_id),
                group_by=group_by,
                made_with=MADE_WITH | ({} if policy is None else policy.made_with()),
                take_over=take_over,
                progress=Progress(partial(print, flush=True) if progress else None),
            ),
        )
        if policy is not None and (steps is None or context.last_step < steps):
            await policy.open(context, partial(loop.run_in_executor, thread))
            trained = True
        while steps is None or context.last_step < steps:
            if policy is not None:
                await policy.roll_out()
            started, taken = context.now(), list[Group]()
            while not taken:
                taken = await loop.run_in_executor(thread, source.next_groups, groups)
            taken.sort(key=lambda group: natural_order(group.group_id))  # and not as they came
            step = Step(context.last_step + 1, tuple(taken), context.resources, _new_record=context.resources_record)
            if policy is not None:
                policy.enter(step)
            yield step
            if policy is not None:
                await policy.leave()
            await loop.run_in_executor(thread, _commit, context, step, started, steps or 0)
            if policy is not None:
                await loop.run_in_executor(thread, policy.keep)
            if step.is_last:
                return
    finally:
        if policy is not None and trained:  # and not by another loop, which goes on
            await policy.close()
        await loop.run_in_executor(thread, opened.close)
        thread.shutdown()


def _commit(context: AlgorithmContext, step: Step, started_unix_nano: int, steps: int) -> None:
    learned = step.learned
    changed = step.published is not None or (learned is not None and learned.changed)
    context.commit(
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
        steps=steps,
    )
    context.history.updates.clear()  # nothing is made again here


def _open(
    opened: ExitStack,
    settings: Settings,
    *,
    trainer_id: str,
    run_id: str,
    group_by: GroupBy | None,
    made_with: Mapping[str, str],
    take_over: bool,
    progress: Progress,
) -> tuple[AlgorithmContext, LoggedGroups]:
    # Before the ledger opens, which fences whoever trains under this id.
    opened.enter_context(RunLock(settings, trainer_id=trainer_id, run_id=run_id, take_over=take_over))
    ledger = KafkaLedger(settings, trainer_id=trainer_id, run_id=run_id)
    opened.callback(ledger.close)
    history = ledger.open()
    history.updates.clear()
    check_same_run(run_id, history.made_with, made_with)
    log = TrajectorySource(settings, ledger.group_id, run_id=run_id)
    opened.callback(log.close)
    log.start(history.low_water)
    source = LoggedGroups(
        log,
        run_id,
        settled=history.settled,
        limit_s=math.inf,
        enqueue=_nobody,
        progress=progress,
        rollouts=RunsRollouts(settings, run_id),
        group_by=group_by,
    )
    context = AlgorithmContext(
        settings=settings,
        run_id=run_id,
        trainer_id=trainer_id,
        train_dataset=(),
        val_dataset=None,
        seed=0,
        rollout_config=RolloutConfig(),
        source=source,
        ledger=ledger,
        servers=NoServers(),
        history=history,
        progress=Progress(None),
        made_with=made_with,
    )
    return context, source


def _nobody(_requests: object) -> None:
    raise AssertionError("a consumer takes what comes; nothing is asked for through it")
