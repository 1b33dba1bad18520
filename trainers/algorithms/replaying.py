"""The training of a run again, from the log: the same weights to the bit, or where they differ.

Or a fork of it: from a step on with other rewards, or without some of its rollouts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TypeAlias

from lightstream.runtime.files import private_folder
from lightstream.runtime.schema_registry import codec_for
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import TrainingError
from lightstream.schemas.records import StepOutcome, TrainingStep
from lightstream.schemas.topics import RESOURCES, TRAINING_STEPS

from ..engines.verl.config import options_of
from ..engines.verl.initial import write_initial_model
from ..ledger.reading import read_topic
from ..loop.protocols import Engine
from ..loop.recovery import Change, has_weights_of, make_again
from ..rollouts.groups.source import LoggedGroups
from ..rollouts.rollouts import Rollouts
from ..rollouts.trajectory_source import TrajectorySource
from ..run.checkpoint import CheckpointFolder, folder_of, run_checkpoints
from ..run.history import History, replay
from ..run.identity import OPTIONS
from ..run.progress import Progress
from ..run.run import Run
from .verl import VERL

STEPS_AT_ONCE = 10
"""So many steps' trajectories are in memory."""

Fork: TypeAlias = "Callable[[Sequence[TrainingStep]], Change]"
"""Given the steps of a fork, says how their trajectories change."""

Differences: TypeAlias = dict[str, tuple[float, float]]
"""Metric -> committed, now."""

TIMES = ("seconds/", "tokens_per_second/")


@dataclass(slots=True)
class ReplayedTraining:
    """The outcome of a run that was made again.

    Attributes:
        weights: the folder of the weights after the last step.
        steps: the steps that changed the weights, now or then; each was made again.
        differing: step -> the metrics that are not the committed ones.
        metrics: step -> the metrics that it had this time; empty where nothing of it was left.
        committed: step -> its committed metrics.
        compared: the steps whose committed weights are still on the disk; those of a fork are not compared.
        other_weights: those of which the weights are not the same to the bit.
    """

    weights: Path
    steps: list[int] = field(default_factory=list[int])
    differing: dict[int, dict[str, tuple[float, float]]] = field(
        default_factory=dict[int, dict[str, tuple[float, float]]]
    )
    metrics: dict[int, dict[str, float]] = field(default_factory=dict[int, dict[str, float]])
    committed: dict[int, dict[str, float]] = field(default_factory=dict[int, dict[str, float]])
    compared: list[int] = field(default_factory=list[int])
    other_weights: list[int] = field(default_factory=list[int])


def replay_training(
    settings: Settings,
    run_id: str,
    folder: Path,
    *,
    at: int = 0,
    fork: Fork | None = None,
    progress: Progress | None = None,
) -> ReplayedTraining:
    """Make every step of a run again: from its first weights, with its options, on the trajectories that it consumed.

    Commits nothing, and samples nothing. On the machine of the run, with the same number of threads and versions of
    torch and verl, all is the same to the bit.

    With a ``fork`` the steps after ``at`` train on changed trajectories. The run sampled them: from the fork's second
    step on, another policy than the fork's answered. Only the run's ``rollout_correction`` accounts for that. Tries of
    steps that were discarded are no part of a fork.

    Args:
        folder: where the weights go, under ``step-…``.
        at: the last step that is made as it was.
        fork: called once, with the steps after ``at``, before any is made; returns how trajectories change.

    Raises:
        TrainingError: the run has no step, or none after ``at``; was not made by ``VERL`` in one process; its first
            weights or some of its trajectories are gone; or the disk has no room to compare weights.
        ServiceUnavailableError: Kafka does not answer.
    """
    progress = progress or Progress(None)
    committed = _steps_of(settings, run_id)
    made = [step for step in committed if _is_made(step, at, fork)]
    if not made:
        raise TrainingError(f"run {run_id!r} has no step that changed the weights.")
    if made[-1].step <= at:
        raise TrainingError(
            f"run {run_id!r} has no step after {at} to make again: its last is {made[-1].step}.",
            next_step="Name an earlier one.",
        )
    change = None if fork is None else fork([step for step in made if step.step > at])
    checkpoints = CheckpointFolder(folder)
    first = _first_weights(settings, made[0], checkpoints)
    making = _Making(settings, run_id, at, change, progress, checkpoints, first, ReplayedTraining(first))
    # Options may have changed at a restart, which went on from a checkpoint just so.
    for options_json, of_options in groupby(made, lambda step: step.made_with[OPTIONS]):
        making.make(VERL(**options_of(options_json)), list(of_options), committed, last=made[-1])
    return making.result


@dataclass(slots=True)
class _Making:
    """Makes steps, those of one set of options after the other."""

    settings: Settings
    run_id: str
    at: int
    change: Change | None
    progress: Progress
    checkpoints: CheckpointFolder
    first: Path
    result: ReplayedTraining
    _after: TrainingStep | None = None

    def make(
        self, options: VERL, of_options: list[TrainingStep], committed: list[TrainingStep], last: TrainingStep
    ) -> None:
        """Make steps with an engine of their own, which is gone afterwards, and write the weights."""
        result, run_id = self.result, self.run_id
        engine = options.new_engine(result.weights, self.first)
        trajectories = TrajectorySource(self.settings, f"lightstream-replay-{run_id}", run_id=run_id)
        with closing(engine), closing(trajectories) as log:
            source = LoggedGroups(log, run_id, limit_s=0.0, enqueue=lambda _: None, progress=self.progress)
            rollouts = Rollouts(run=_run(self.settings, committed, self.progress), source=options.scored(source))
            for steps in _chunks(of_options, self.at):
                self.progress.say(f"Making steps {steps[0].step} to {steps[-1].step} of {last.step} again.")
                change = self.change if steps[0].step > self.at else None
                for step in steps:
                    result.steps.append(step.step)
                    result.committed[step.step], result.metrics[step.step] = dict(step.metrics), {}
                for step, metrics in make_again(options, rollouts, engine, steps, after=self._after, change=change):
                    self._compare(step, metrics)
                    if change is None:
                        self._compare_weights(step, engine)
                self._after = next((s for s in reversed(steps) if s.outcome is StepOutcome.UPDATED), self._after)
            save = engine.save_weights if of_options[-1] is last else engine.save
            result.weights = self.checkpoints.write(of_options[-1].step, save)

    def _compare(self, step: TrainingStep, metrics: dict[str, float]) -> None:
        self.result.metrics[step.step] = metrics
        differing = {
            name: (step.metrics[name], value)
            for name, value in metrics.items()
            if name in step.metrics and not _is_time(name) and not _same(step.metrics[name], value)
        }
        if differing:
            self.result.differing[step.step] = differing

    def _compare_weights(self, step: TrainingStep, engine: Engine) -> None:
        folder = folder_of(self.settings, step.checkpoint_url or "")
        if not step.checkpoint_url or not any(folder.rglob("*model.safetensors")):
            return
        self.result.compared.append(step.step)
        try:
            private_folder(self.checkpoints.root)
            if not has_weights_of(engine, folder, self.checkpoints.root):
                self.result.other_weights.append(step.step)
        except OSError as error:
            raise TrainingError(
                f"the weights of step {step.step} cannot be written to {self.checkpoints.root}, to compare them: "
                f"{error}.",
                next_step="Make room, or name another folder.",
            ) from error


def _is_made(step: TrainingStep, at: int, fork: Fork | None) -> bool:
    """Whether a step is made again. In a fork, one without a signal may have another reward, and with it a signal."""
    forked = fork is not None and step.step > at
    return step.outcome is StepOutcome.UPDATED or (forked and step.outcome is StepOutcome.UNCHANGED)


def _steps_of(settings: Settings, run_id: str) -> list[TrainingStep]:
    codec, group_id = codec_for(settings), f"lightstream-replay-{run_id}"
    steps = [
        record
        for _, record in read_topic(settings, TRAINING_STEPS, codec, group_id=group_id)
        if isinstance(record, TrainingStep) and record.run_id == run_id
    ]
    if not steps:
        raise TrainingError(f"there is no step of run {run_id!r}.", next_step="`lightstream runs` shows the runs.")
    algorithm = steps[0].made_with.get("algorithm", "an algorithm")
    if OPTIONS not in steps[0].made_with or not algorithm.startswith("VERL"):
        raise TrainingError(
            f"run {run_id!r} was made by {algorithm}, whose steps do not follow from the log alone.",
            next_step="Only runs of VERL can be made again.",
        )
    resources = [record for _, record in read_topic(settings, RESOURCES, codec, group_id=group_id)]
    replay(steps, resources, trainer_id=steps[0].trainer_id, run_id=run_id)  # raises where steps are missing
    return steps


def _first_weights(settings: Settings, first: TrainingStep, checkpoints: CheckpointFolder) -> Path:
    """The run's version 0, or the model that it was made from."""
    kept = sorted(run_checkpoints(settings, first.run_id).root.glob("step-000000-*"))
    if kept:
        return kept[0]
    options = VERL(**options_of(first.made_with[OPTIONS]))
    seed = int(first.made_with.get("seed", "0"))
    return checkpoints.write(0, partial(write_initial_model, options, seed=seed))


def _run(settings: Settings, committed: Sequence[TrainingStep], progress: Progress) -> Run:
    """The run of these steps, before it has any."""
    made_with = committed[0].made_with
    return Run(
        settings=settings,
        run_id=committed[0].run_id,
        trainer_id=committed[0].trainer_id,
        history=History(),
        seed=int(made_with.get("seed", "0")),
        progress=progress,
    )


def _chunks(steps: list[TrainingStep], at: int) -> Iterator[list[TrainingStep]]:
    for part in ([step for step in steps if step.step <= at], [step for step in steps if step.step > at]):
        for first in range(0, len(part), STEPS_AT_ONCE):
            yield part[first : first + STEPS_AT_ONCE]


def _is_time(name: str) -> bool:
    """Whether a metric, of one of several policies too, is about how long something took."""
    own = name.split("/", 2)[2] if name.startswith("policy/") else name
    return own.startswith(TIMES)


def _same(a: float, b: float) -> bool:
    return a == b or (math.isnan(a) and math.isnan(b))
