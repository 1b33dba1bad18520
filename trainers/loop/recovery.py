"""The recovery of a killed trainer: its last checkpoint, and the committed steps after it, made again from the log.

Servers get the weights of every step, in the type that the actor computes in. Optimiser and float32 weights are written
every ``checkpoint_every`` steps, after the commit and beside the rollouts of the next step. A restart loads the newest
of these and makes the updates after it again, from the trajectories that the ledger names: the same to the bit.
"""

from __future__ import annotations

import filecmp
import logging
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TypeAlias

from lightstream.runtime.disk import DiskRoom
from lightstream.runtime.files import private_folder
from lightstream.schemas.errors import TrainingError
from lightstream.schemas.records import StepOutcome, TrainingStep, Trajectory

from ..rollouts.groups import Group, natural_order
from ..rollouts.rollouts import Rollouts
from ..run.checkpoint import CheckpointFolder, existing_folder
from .metrics import group_metrics
from .options import LoopOptions
from .policy import checkpoint_of, latest, own_policy
from .protocols import Engine
from .step import select_batch, update
from .steps import GROUP_SKIPPED, Steps
from .waves import split_silent

logger = logging.getLogger(__name__)

WEIGHTS_FILE = "weights.txt"
"""Has the address of the served weights that a checkpoint belongs to: the ledger knows of which step those are."""

Change: TypeAlias = "Callable[[Trajectory], Trajectory | None]"
"""The trajectory to train on in place of a consumed one; ``None`` leaves it out."""

NAME_OF_0_2 = "policy"
"""What 0.2 served the weights of every run as; its calls do not name their resources."""


class Recovery:
    """The recovery checkpoints of one run: ``<data_dir>/recovery/<run_id>``."""

    def __init__(self, options: LoopOptions, steps: Steps) -> None:
        self._options = options
        self._steps = steps
        self._run = run = steps.run
        folder = run.settings.data_dir.absolute() / "recovery" / run.run_id
        self._folder = CheckpointFolder(folder, DiskRoom(run.settings, folder))
        self._saved = 0

    def restore(self, new_engine: Callable[[Path, Path | None], Engine]) -> Engine:
        """The engine as it was after the last committed step.

        Raises:
            TrainingError: the checkpoint, or what the log held since, is gone. Nothing has changed.
        """
        run, history = self._run, self._run.history
        self._saved, folder = self._newest()
        first = history.checkpoints.get(0)
        first_folder = None if first is None else run.folder_of(first)
        engine = new_engine(folder, first_folder)
        missing = [s for s in history.updates if s.step > self._saved]
        if self._saved == 0 and len(missing) != latest(run).version:  # each update made one version
            ledger = run.settings.data_dir.absolute() / "ledger"
            raise TrainingError(
                f"the checkpoints of run {run.run_id!r} are gone from {self._folder.root}, and the memory of its steps "
                "begins after the first.",
                next_step=f"Restore them; or delete {ledger}, so that the whole log is read, and start again.",
            )
        if missing:
            run.progress.say(f"Making {len(missing)} steps after step {self._saved} again, from the log.")
            self._make_again(engine, missing)
            engine = self._as_served(engine, lambda served: new_engine(served, first_folder), missing)
        engine.saved_in(checkpoint_of(run, latest(run)))
        return engine

    def save_if_due(self, engine: Engine) -> None:
        """Write a checkpoint if ``checkpoint_every`` steps were committed since the last one."""
        if self._run.last_step - self._saved >= self._options.checkpoint_every:
            self._save(engine)

    def _save(self, engine: Engine) -> None:
        run, history = self._run, self._run.history
        written = self._folder.write(run.last_step, partial(self._fill, engine=engine))
        self._folder.keep_only([written])
        self._saved = run.last_step
        history.updates = [step for step in history.updates if step.step >= self._saved]

    def keep(self) -> None:
        """Delete served weights that nobody needs any more. The first version stays: the run can be made again."""
        self._steps.keep_checkpoints(self._options.keep_checkpoints, besides=(0,))

    def _fill(self, folder: Path, engine: Engine) -> None:
        engine.save(folder)
        (folder / WEIGHTS_FILE).write_text(latest(self._run).checkpoint_url or "", "utf-8")

    def _newest(self) -> tuple[int, Path]:
        """The newest checkpoint of what the ledger has, and its step."""
        run = self._run
        step_of = {run.folder_of(url): step for step, url in run.history.checkpoints.items()}
        found: dict[int, Path] = {}
        for folder in self._folder.root.iterdir() if self._folder.root.is_dir() else ():
            marker = folder / WEIGHTS_FILE
            if not folder.name.startswith(".") and marker.is_file():
                step = step_of.get(run.folder_of(marker.read_text("utf-8")))
                if step is not None:
                    found[step] = folder
        if found:
            return max(found.items())
        return 0, existing_folder(run.settings, run.history.checkpoints.get(0), run.run_id)

    def _as_served(self, engine: Engine, new_engine: Callable[[Path], Engine], steps: list[TrainingStep]) -> Engine:
        """The engine, if steps that were made again gave the weights that servers have; else one of those weights.

        Raises:
            TrainingError: neither has them; or the disk has no room to compare them.
        """
        served = checkpoint_of(self._run, latest(self._run))
        which = f"steps {steps[0].step} to {steps[-1].step}" if len(steps) > 1 else f"step {steps[0].step}"
        try:
            private_folder(self._folder.root)
            if has_weights_of(engine, served, self._folder.root):
                return engine
        except OSError as error:
            engine.close()
            raise TrainingError(
                f"the weights of {which} of run {self._run.run_id!r} cannot be written, to compare them with the "
                f"served ones: {error}.",
                next_step="Make room; nothing is lost, and the same command goes on.",
            ) from error
        engine.close()
        engine = new_engine(served)
        if not has_weights_of(engine, served, self._folder.root):
            engine.close()
            raise TrainingError(
                f"{which} of run {self._run.run_id!r} gave other weights when made again than are served: another "
                "version of Lightstream or of a library made them.",
                next_step="Go on with that version, or start a new run from the model in " + str(served) + ".",
            )
        logger.warning(
            "%s of run %r gave other weights when made again: another version of Lightstream or of a library made "
            "them. The run goes on with the weights that are served; its optimiser begins anew.",
            which,
            self._run.run_id,
        )
        self._save(engine)
        return engine

    def _make_again(self, engine: Engine, steps: list[TrainingStep]) -> None:
        rollouts, history = self._steps.rollouts, self._run.history
        before = [s for s in history.updates if s.step <= self._saved]
        for _ in make_again(self._options, rollouts, engine, steps, after=before[-1] if before else None):
            pass
        rollouts.source.seek(history.low_water)


def has_weights_of(engine: Engine, folder: Path, beside: Path | None = None) -> bool:
    """Whether the engine would write the weights, of every policy, that a served checkpoint has: the same to the bit.

    True where the checkpoint has none any more.

    Args:
        beside: a folder in which the weights are written for the comparison, and which all processes of the engine
            reach; ``None``: the system's for temporary files.

    Raises:
        OSError: they cannot be written.
    """
    committed = [path.relative_to(folder) for path in folder.rglob("*model.safetensors")]
    with tempfile.TemporaryDirectory(dir=beside, prefix=".compared-") as written:
        engine.save_weights(Path(written))
        return all(filecmp.cmp(folder / file, Path(written) / file, shallow=False) for file in committed)


def make_again(
    options: LoopOptions,
    rollouts: Rollouts,
    engine: Engine,
    steps: Sequence[TrainingStep],
    *,
    after: TrainingStep | None,
    change: Change | None = None,
) -> Iterator[tuple[TrainingStep, dict[str, float]]]:
    """Make committed steps again, from the trajectories that they name, in the revisions that they consumed.

    Reads them from the rollouts' source, which has to :meth:`~GroupSource.seek` afterwards.

    Args:
        steps: in order; those that changed the weights, and with a ``change`` also those that left them as they were.
        after: the last step before them that changed the weights; ``None``: there is none.
        change: gives the trajectory to train on in place of each; ``None`` leaves it out.

    Yields:
        Each step that changed the weights this time, and its metrics; with a ``change`` each one that has rollouts.

    Raises:
        TrainingError: trajectories are gone from the log.
    """
    low_water = {p.partition: p.offset for p in after.low_water} if after is not None else {}
    consumed = [consumed_in(step) for step in steps]
    run = rollouts.run
    found = rollouts.source.reread(low_water, {identity for names in consumed for identity in names})
    version = version_of(after)
    for step, names in zip(steps, consumed, strict=True):
        if not found.keys() >= names.keys():
            lost = len(names.keys() - found.keys())
            raise TrainingError(
                f"step {step.step} of run {run.run_id!r} cannot be made again: {lost} of its trajectories "
                "are gone from the log.",
                next_step="Start a new run with another run_id and trainer_id.",
            )
        groups = [
            Group(name, tuple(found[i] for i in sorted(names, key=lambda i: natural_order(i[0])) if names[i] == name))
            for name in sorted(set(names.values()), key=natural_order)
        ]
        if change is not None:
            groups = list(_changed(groups, change))
        if step.outcome is StepOutcome.UPDATED:
            version = version_of(step) - 1
        own = partial(own_policy, options, run, version, former_name=NAME_OF_0_2)
        batch = select_batch(options, split_silent(options, groups), version, engine, own)
        metrics = group_metrics(groups) | batch.metrics
        if batch.outcome is StepOutcome.UPDATED:
            updated = update(engine, batch, run, step.step, version, sampled_elsewhere=change is not None)
            yield step, metrics | updated.metrics
        elif groups and change is not None:
            yield step, metrics
        if step.outcome is StepOutcome.UPDATED:
            version += 1


def consumed_in(step: TrainingStep) -> dict[tuple[str, str, int], str]:
    """Rollout, attempt and revision of each trajectory that a step could train on, to its group."""
    return {
        (c.rollout_id, c.attempt_id, c.revision): c.group_id
        for c in step.consumed
        if GROUP_SKIPPED not in c.not_trained
    }


def version_of(step: TrainingStep | None) -> int:
    """The version of the weights after a step that changed them; 0 before the first."""
    return 0 if step is None else int((step.resources_id or "").rpartition("-v")[2])


def _changed(groups: Sequence[Group], change: Change) -> Iterator[Group]:
    """The groups with trajectories changed; a group of which none is left is left out."""
    for group in groups:
        if kept := tuple(found for found in map(change, group.trajectories) if found is not None):
            yield Group(group.group_id, kept)
