"""The training of a run again, from the log: the same weights to the bit, or where they differ.

Or a fork of it: from a step on with other rewards, or without some of its rollouts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TypeAlias

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
        compared: the steps whose committed weights are still on the disk.
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
    change: Change | None = None,
    progress: Progress | None = None,
) -> ReplayedTraining:
    """Make every step of a run again: from its first weights, with its options, on the trajectories that it consumed.

    Commits nothing, and samples nothing. On the machine of the run, with the same number of threads and versions of
    torch and verl, all is the same to the bit.

    With a ``change`` the steps after ``at`` are a fork. Its rollouts are those that the run sampled: from its second
    step on, another policy than the fork's answered, and only a correction (``correction=…``) accounts for that.

    Args:
        folder: where the weights go, under ``step-…``.
        at: the last step that is made as it was.
        change: gives the trajectory to train on in place of each after ``at``; ``None`` leaves it out.

    Raises:
        TrainingError: the run has no step, or none after ``at``; was not made by ``VERL`` in one process; or its first
            weights or some of its trajectories are gone.
        ServiceUnavailableError: Kafka does not answer.
    """
    progress = progress or Progress(None)
    committed = _steps_of(settings, run_id)
    updates = [step for step in committed if _is_made(step, at, change)]
    if not updates:
        raise TrainingError(f"run {run_id!r} has no step that changed the weights.")
    if at and not updates[0].step <= at < updates[-1].step:
        raise TrainingError(
            f"run {run_id!r} has no step {at} that others follow.",
            next_step=f"Name one from {updates[0].step} to {updates[-1].step - 1}.",
        )
    checkpoints = CheckpointFolder(folder)
    first = _first_weights(settings, updates[0], checkpoints)
    result = ReplayedTraining(first)
    after: TrainingStep | None = None
    # Options may have changed at a restart, which went on from a checkpoint just so.
    for (options_json, _), of_options in groupby(updates, lambda step: (step.made_with[OPTIONS], step.step > at)):
        options = VERL(**options_of(options_json))
        engine = options.new_engine(result.weights, first)
        with closing(engine), closing(TrajectorySource(settings, f"lightstream-replay-{run_id}", run_id=run_id)) as log:
            source = LoggedGroups(log, run_id, limit_s=0.0, enqueue=lambda _: None, progress=progress)
            rollouts = Rollouts(run=_run(settings, committed, progress), source=options.scored(source))
            for steps in _chunks(list(of_options)):
                progress.say(f"Making steps {steps[0].step} to {steps[-1].step} of {updates[-1].step} again.")
                changed = change if steps[0].step > at else None
                for step in steps:
                    result.steps.append(step.step)
                    result.committed[step.step], result.metrics[step.step] = dict(step.metrics), {}
                for step, metrics in make_again(options, rollouts, engine, steps, after=after, change=changed):
                    _compare(settings, result, step, metrics, engine)
                after = next((s for s in reversed(steps) if s.outcome is StepOutcome.UPDATED), after)
            save = engine.save_weights if result.steps[-1] == updates[-1].step else engine.save
            result.weights = checkpoints.write(result.steps[-1], save)
    return result


def _is_made(step: TrainingStep, at: int, change: Change | None) -> bool:
    """Whether a step is made again. In a fork, one without a signal may have another reward, and with it a signal."""
    forked = change is not None and step.step > at
    return step.outcome is StepOutcome.UPDATED or (forked and step.outcome is StepOutcome.UNCHANGED)


def _steps_of(settings: Settings, run_id: str) -> list[TrainingStep]:
    codec, group_id = codec_for(settings), f"lightstream-replay-{run_id}"
    records = [record for _, record in read_topic(settings, TRAINING_STEPS, codec, group_id=group_id)]
    steps = [record for record in records if isinstance(record, TrainingStep) and record.run_id == run_id]
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


def _chunks(steps: list[TrainingStep]) -> Iterator[list[TrainingStep]]:
    for first in range(0, len(steps), STEPS_AT_ONCE):
        yield steps[first : first + STEPS_AT_ONCE]


def _compare(
    settings: Settings, result: ReplayedTraining, step: TrainingStep, metrics: dict[str, float], engine: Engine
) -> None:
    result.metrics[step.step] = metrics
    differing = {
        name: (step.metrics[name], value)
        for name, value in metrics.items()
        if name in step.metrics and not _is_time(name) and not _same(step.metrics[name], value)
    }
    if differing:
        result.differing[step.step] = differing
    folder = folder_of(settings, step.checkpoint_url or "")
    if step.checkpoint_url and any(folder.rglob("*model.safetensors")):
        result.compared.append(step.step)
        if not has_weights_of(engine, folder):
            result.other_weights.append(step.step)


def _is_time(name: str) -> bool:
    """Whether a metric, of one of several policies too, is about how long something took."""
    own = name.split("/", 2)[2] if name.startswith("policy/") else name
    return own.startswith(TIMES)


def _same(a: float, b: float) -> bool:
    return a == b or (math.isnan(a) and math.isnan(b))
