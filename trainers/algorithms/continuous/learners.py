"""The lesson of a window: trajectories with their advantages, or the reason why not. Pure."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

from lightstream.schemas.errors import SettingsError
from lightstream.schemas.records import TaskRewards, Trajectory

from ...rollouts.batch import Exclusion, rollout_score
from ...rollouts.batch.scores import is_beyond, whitened
from ...rollouts.groups import natural_order

Baseline: TypeAlias = Literal["task", "window"]
TaskKey: TypeAlias = "Callable[[Trajectory], str]"
"""Names the task of a trajectory; those of one task are compared with each other, across windows."""


def input_key(trajectory: Trajectory) -> str:
    """The task key by default: a hash of the rollout's input."""
    return hashlib.sha256(trajectory.input_json.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Lesson:
    """The lesson of a window.

    Attributes:
        data: trajectories, each with the advantage of all its calls.
        loss: verl's name of the objective.
        not_trained: (rollout id, attempt id) -> why nothing of it is learned.
        tasks: rewards of the window by task; later windows are given their sums.
        metrics: numbers for the step.
    """

    data: tuple[tuple[Trajectory, float], ...]
    loss: str
    not_trained: dict[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])
    tasks: tuple[TaskRewards, ...] = ()
    metrics: dict[str, float] = field(default_factory=dict[str, float])


class Learner(Protocol):
    """Turns a window into a lesson: a pure function of its arguments."""

    @property
    def name(self) -> str:
        """Name and options; a run that goes on keeps them."""
        ...

    def lesson(self, window: Sequence[Trajectory], tasks: Mapping[str, TaskRewards]) -> Lesson:
        """Make the lesson of a window.

        Args:
            window: its trajectories, without those that a rule left out.
            tasks: task key -> rewards of all windows before.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Reinforce:
    """Policy gradient without groups.

    A trajectory's advantage is its reward minus a baseline: the mean reward of its task in the windows before, else the
    mean of the window's trajectories without such a mean. Advantages are then whitened over the tokens of the window
    (REINFORCE++, arXiv:2501.03262). Older policies are corrected by the loss: the ratio to the recorded probabilities.

    Attributes:
        baseline: ``task``; or ``window``: the mean of the window for all.
        task_key: names a trajectory's task; ``None``: a hash of its input.
        loss: verl's name of the objective.
    """

    baseline: Baseline = "task"
    task_key: TaskKey | None = None
    loss: str = "vanilla"

    def __post_init__(self) -> None:
        if self.baseline not in ("task", "window"):
            raise SettingsError(f"baseline is {self.baseline!r}; there are task and window.")

    @property
    def name(self) -> str:
        """``reinforce`` and its baseline."""
        return f"reinforce, baseline {self.baseline}"

    def lesson(self, window: Sequence[Trajectory], tasks: Mapping[str, TaskRewards]) -> Lesson:
        """Give each trajectory with a reward its advantage."""
        scored, not_trained = _scored(window)
        key_of = self.task_key or input_key
        keys = [key_of(trajectory) for trajectory, _ in scored]
        known = [tasks.get(key) if self.baseline == "task" else None for key in keys]
        fresh = [reward for (_, reward), before in zip(scored, known, strict=True) if before is None]
        mean = _mean(fresh) if fresh else 0.0
        centred = [
            reward - (mean if before is None else before.total / before.count)
            for (_, reward), before in zip(scored, known, strict=True)
        ]
        tokens = [sum(sum(call.response_mask) for call in trajectory.triplets) for trajectory, _ in scored]
        advantages = whitened(centred, tokens) if scored else []
        return Lesson(
            tuple((trajectory, advantage) for (trajectory, _), advantage in zip(scored, advantages, strict=True)),
            self.loss,
            not_trained,
            _by_task(keys, [reward for _, reward in scored]),
            {"learn/baselines_of_tasks": float(len(scored) - len(fresh))},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectionSampling:
    """Supervised fine-tuning on the best answers of the window (cross-entropy of their tokens).

    Attributes:
        at_least: trajectories with this reward or more; ``None``: the best ``share``.
        share: share of the window's trajectories with a reward, rounded up; ties by the order of their ids.
    """

    at_least: float | None = None
    share: float = 0.25

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise SettingsError(f"the share is {self.share}; it is above 0 and at most 1.")

    @property
    def name(self) -> str:
        """``sft`` and its bound."""
        return f"sft, best {self.share:g}" if self.at_least is None else f"sft, reward at least {self.at_least:g}"

    def lesson(self, window: Sequence[Trajectory], tasks: Mapping[str, TaskRewards]) -> Lesson:
        """Choose the best."""
        scored, not_trained = _scored(window)
        best = sorted(scored, key=lambda one: (-one[1], natural_order(one[0].rollout_id)))
        if self.at_least is None:
            chosen = best[: math.ceil(self.share * len(best))]
        else:
            chosen = [one for one in best if one[1] >= self.at_least]
        kept = {_key(trajectory) for trajectory, _ in chosen}
        not_trained |= {
            _key(trajectory): Exclusion.REJECTED for trajectory, _ in scored if _key(trajectory) not in kept
        }
        data = tuple((trajectory, 1.0) for trajectory, _ in scored if _key(trajectory) in kept)
        return Lesson(data, "gpg", not_trained, (), {"learn/chosen": float(len(data))})


LEARNERS: Mapping[str, Callable[[], Learner]] = {"reinforce": Reinforce, "sft": RejectionSampling}
"""Learners by name, with their default options."""


def learner_of(learner: str | Learner) -> Learner:
    """A learner by its name, or itself.

    Raises:
        SettingsError: there is no such learner.
    """
    if not isinstance(learner, str):
        return learner
    if learner not in LEARNERS:
        raise SettingsError(f"there is no learner {learner!r}.", next_step=f"There are {', '.join(LEARNERS)}.")
    return LEARNERS[learner]()


def _scored(
    window: Sequence[Trajectory],
) -> tuple[list[tuple[Trajectory, float]], dict[tuple[str, str], str]]:
    """Trajectories with a reward and a call, and why the others have no weight."""
    scored: list[tuple[Trajectory, float]] = []
    not_trained: dict[tuple[str, str], str] = {}
    for trajectory in window:
        reward = rollout_score(trajectory)
        if not trajectory.triplets:
            not_trained[_key(trajectory)] = Exclusion.NO_CALLS.value
        elif reward is None:
            reason = Exclusion.NOT_FINITE if is_beyond(trajectory) else Exclusion.NO_REWARD
            not_trained[_key(trajectory)] = reason.value
        else:
            scored.append((trajectory, reward))
    return scored, not_trained


def _key(trajectory: Trajectory) -> tuple[str, str]:
    return trajectory.rollout_id, trajectory.attempt_id


def _by_task(keys: Sequence[str], rewards: Sequence[float]) -> tuple[TaskRewards, ...]:
    of_task: dict[str, list[float]] = {}
    for key, reward in zip(keys, rewards, strict=True):
        of_task.setdefault(key, []).append(reward)
    return tuple(
        TaskRewards(task=task, count=len(given), total=math.fsum(given)) for task, given in sorted(of_task.items())
    )


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
