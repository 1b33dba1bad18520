"""The rollouts of a run: enqueued by step, and collected in complete groups."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from lightstream.schemas.errors import TrainingError
from lightstream.schemas.types import Assembly, EnqueueRolloutRequest, RolloutConfig, RolloutMode

from ..run.run import Run
from ..run.tasks import (
    Dataset,
    TaskRequest,
    TasksOfStep,
    further_group_id,
    further_index,
    step_group_id,
    step_requests,
    task_of,
    tasks_of_step,
    validation_group_id,
)
from .groups import Group, natural_order
from .protocol import GroupSource

RETRY_WHAT_IS_LOST = RolloutConfig(max_attempts=3, retry_condition=["unresponsive", "timeout"])
"""An attempt whose Runner died is tried again. One that the agent failed is data."""


class CollectError(TrainingError):
    """No group was complete by the time every rollout must have ended. The next commit records them as skipped."""


@dataclass(frozen=True, kw_only=True)
class Rollouts:
    """The rollouts of one run. Not thread-safe; its methods block.

    Attributes:
        run: whose rollouts.
        source: where groups come from.
        train_dataset, val_dataset: tasks.
        rollout_config: deadlines and retries of the rollouts.
        assembly: rules by which rollouts become trajectories; ``None``: the worker's settings.
    """

    run: Run
    source: GroupSource
    train_dataset: Dataset = ()
    val_dataset: Dataset | None = None
    rollout_config: RolloutConfig = field(default_factory=RolloutConfig)
    assembly: Assembly | None = None
    _asked: dict[int, list[str]] = field(default_factory=dict[int, list[str]], init=False, repr=False)

    def enqueue_step(
        self,
        step: int,
        *,
        tasks: int,
        rollouts_per_task: int,
        baselines: bool = False,
        resources_id: str | None = None,
        known_step: int | None = None,
    ) -> list[str]:
        """Enqueue the rollouts of a step; calling it again (after a restart) enqueues the same ones.

        A step of which tries were discarded gets new rollouts of the same tasks.

        Args:
            step: 1, 2, …; decides which tasks.
            tasks: how many tasks of the data set.
            rollouts_per_task: the size of each group.
            baselines: ask for one more rollout in each, of mode ``test``, that the others are compared with.
            resources_id: what the rollouts use; by default the latest of this run.
            known_step: a data set that chooses its tasks may look at the steps up to this one, which are committed
                whenever this step is asked for; by default the step before.

        Returns:
            The ids of the groups that are neither consumed nor skipped yet.
        """
        run, history = self.run, self.run.history
        discarded, settled = history.discarded.get(step, 0), history.settled
        names = [step_group_id(run.run_id, step, i, discarded) for i in range(tasks)]
        if step >= settled.below_step:
            self._asked[step] = names
        if all(name in settled for name in names):
            return []
        known = step - 1 if known_step is None else max(0, known_step)
        indices = tasks_of_step(
            self.train_dataset,
            TasksOfStep(run_id=run.run_id, seed=run.seed, step=step, count=tasks, known_step=known),
        )
        wanted = {
            name: task_of(self.train_dataset, index)
            for name, index in zip(names, indices, strict=True)
            if name not in settled
        }
        self._enqueue(wanted, rollouts_per_task, "train", resources_id, baselines=baselines)
        return list(wanted)

    def enqueue_further(
        self,
        count: int,
        *,
        rollouts_per_task: int,
        baselines: bool = False,
        besides: Collection[str] = (),
        resources_id: str | None = None,
    ) -> list[str]:
        """Enqueue groups of further tasks, beside the steps' groups; after a restart, the unfinished ones first.

        Args:
            count: how many.
            rollouts_per_task, baselines: as for :meth:`enqueue_step`.
            besides: groups that are in progress already.
            resources_id: what the rollouts use; by default the latest of this run.

        Returns:
            The ids of the groups.
        """
        run, settled, besides = self.run, self.run.history.settled, frozenset(besides)
        wanted: dict[str, TaskRequest] = {}
        for number in itertools.count(settled.below_further):
            name = further_group_id(run.run_id, number)
            if len(wanted) >= count:
                break
            if name not in settled and name not in besides:
                index = further_index(number, self.train_dataset, run.run_id, run.seed)
                wanted[name] = task_of(self.train_dataset, index)
        self._enqueue(wanted, rollouts_per_task, "train", resources_id, baselines=baselines)
        return list(wanted)

    def validate(self, step: int, *, samples: int = 1, resources_id: str | None = None) -> list[Group]:
        """Roll out every validation task ``samples`` times and wait; empty without a validation data set.

        Groups that are skipped are left out, see :meth:`collect`; they may be all.
        """
        tasks = self.val_dataset
        if tasks is None or len(tasks) == 0:
            return []
        wanted = {validation_group_id(self.run.run_id, step, i): task_of(tasks, i) for i in range(len(tasks))}
        self._enqueue(wanted, samples, "val", resources_id)
        return sorted(self.source.validation_groups(wanted), key=_by_name)

    def collect(self, group_ids: Collection[str], count: int | None = None) -> list[Group]:
        """Wait for complete groups and take them: they must be part of the next commit.

        A group that is not complete although each of its rollouts must have ended is skipped: it is not returned, and
        the next commit records what came of it, without a weight. Groups that are skipped already are passed over.

        Args:
            group_ids: which groups to take from.
            count: how many; the others stay for later. By default all.

        Raises:
            CollectError: every one of them is skipped.
        """
        count = len(group_ids) if count is None else count
        groups: list[Group] = []
        if count:
            for group in self.source.groups(sorted(group_ids, key=natural_order)):
                groups.append(group)
                if len(groups) == count:
                    break
        if group_ids and not groups and self.skipped.issuperset(group_ids):
            raise CollectError(
                f"none of {len(group_ids)} groups is complete after {self.source.limit_s:g} s without a rollout.",
                next_step="`lightstream status` shows whether the worker and the Runners are running.",
            )
        return sorted(groups, key=_by_name)

    @property
    def skipped(self) -> frozenset[str]:
        """Groups of this run that are skipped, of earlier steps too."""
        return self.source.skipped

    def settled_below(self, last_step: int) -> int:
        """Return the first step with open groups; at most ``last_step`` + 1, or the first that was not asked for."""
        settled = self.run.history.settled
        step = settled.below_step
        while step <= last_step and step in self._asked and all(name in settled for name in self._asked[step]):
            del self._asked[step]
            step += 1
        return step

    def _enqueue(
        self,
        tasks: Mapping[str, TaskRequest],
        count: int,
        mode: RolloutMode,
        resources_id: str | None,
        *,
        baselines: bool = False,
    ) -> None:
        run = self.run
        if resources_id is None and run.resources is not None:
            resources_id = run.resources.resources_id
        requests: list[EnqueueRolloutRequest] = []
        for group_id, task in tasks.items():
            requests += step_requests(
                group_id,
                task,
                count=count,
                run_id=run.run_id,
                mode=mode,
                resources_id=resources_id,
                config=self.rollout_config,
                assembly=self.assembly,
                baseline=baselines,
            )
        self.source.ask(requests)


def _by_name(group: Group) -> tuple[tuple[int, int, str], ...]:
    return natural_order(group.group_id)
