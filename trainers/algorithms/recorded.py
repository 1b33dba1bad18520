"""Training on recorded trajectories: the same loop without Kafka, Runners or model servers."""

from __future__ import annotations

import base64
import binascii
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import TrainingError
from lightstream.schemas.records import Trajectory

from ..ledger import MemoryLedger
from ..loop.steps import Steps
from ..rollouts.groups.source import LoggedGroups, LoggedTrajectory
from ..rollouts.rollouts import Rollouts
from ..run.history import History
from ..run.progress import Progress
from ..run.report import StepObserver
from ..run.run import Run
from ..servers.following import NoServers
from .context import AlgorithmContext
from .interface import Algorithm, AlgorithmFunction, as_algorithm

PARTITION = 0
PACKED = ("prompt_token_ids", "response_token_ids", "response_logprobs", "response_mask")
"""Fields of a triplet that are bytes; in the file, base64 with ``-`` and ``_``."""

AT_ONCE_S = -1.0
"""A group that is not complete in the recording never will be."""


def write_recording(trajectories: Iterable[Trajectory], path: Path) -> int:
    """Write trajectories as JSON lines, nothing of them left out; returns how many. The file appears once it is whole.

    Raises:
        OSError: it cannot be written; ``path`` is as before.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    count = 0
    try:
        with temporary.open("w", encoding="utf-8") as file:
            for trajectory in trajectories:
                file.write(json.dumps(trajectory.model_dump(), default=_packed) + "\n")
                count += 1
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    return count


def read_recording(path: Path) -> list[Trajectory]:
    """The trajectories of a file of :func:`write_recording`, in its order.

    Raises:
        TrainingError: there is no such file, or a line of it is no trajectory.
    """
    trajectories: list[Trajectory] = []
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                try:
                    trajectories.append(_trajectory(json.loads(line)))
                except (ValueError, TypeError, KeyError, ValidationError, binascii.Error) as error:
                    raise TrainingError(
                        f"line {number} of {path} is no trajectory: {str(error).splitlines()[0]}.",
                        next_step="Write the file with `lightstream export recording`.",
                    ) from error
    except OSError as error:
        raise TrainingError(f"the recording {path} cannot be read: {error.strerror}.") from error
    return trajectories


class RecordedTrajectories:
    """A recording as a log: one partition, whose offsets are the places in the recording.

    Args:
        trajectories: in the order in which they were written.
        run_id: those of other runs are passed over.
    """

    def __init__(self, trajectories: Sequence[Trajectory], run_id: str) -> None:
        self._trajectories = trajectories
        self._run_id = run_id
        self._next = 0
        self.undecodable = 0
        self.of_other_runs = 0

    def start(self, low_water: Mapping[int, int]) -> None:
        """Read from this place on."""
        self._next = low_water.get(PARTITION, 0)

    def poll(self, timeout_s: float) -> list[LoggedTrajectory]:
        """All that is left, at once."""
        found: list[LoggedTrajectory] = []
        for offset in range(self._next, len(self._trajectories)):
            if self._trajectories[offset].run_id == self._run_id:
                found.append(LoggedTrajectory(self._trajectories[offset], PARTITION, offset))
            else:
                self.of_other_runs += 1
        self._next = len(self._trajectories)
        return found

    def whole(self, trajectory: Trajectory) -> Trajectory:
        """Itself: recordings leave nothing out."""
        return trajectory

    def end_offsets(self) -> dict[int, int]:
        """The number of trajectories."""
        return {PARTITION: len(self._trajectories)}

    def has_read(self, ends: Mapping[int, int]) -> bool:
        """Whether everything below was returned by :meth:`poll`."""
        return self._next >= ends[PARTITION]

    @property
    def next_offsets(self) -> dict[int, int]:
        """The next place."""
        return {PARTITION: self._next}

    @property
    def consumer_group(self) -> None:
        """There are no offsets to commit."""
        return


def recorded_context(
    trajectories: Sequence[Trajectory],
    *,
    settings: Settings,
    ledger: MemoryLedger,
    history: History,
    run_id: str,
    seed: int = 0,
    observers: Sequence[StepObserver] = (),
    progress: Progress | None = None,
    made_with: Mapping[str, str] | None = None,
) -> AlgorithmContext:
    """A context whose rollouts are in a recording already: asking for them makes nothing."""
    source = LoggedGroups(
        RecordedTrajectories(trajectories, run_id),
        run_id,
        settled=history.settled,
        limit_s=AT_ONCE_S,
        enqueue=lambda _: None,
        progress=progress,
    )
    source.seek(history.low_water)
    run = Run(
        settings=settings,
        run_id=run_id,
        trainer_id=run_id,
        history=history,
        seed=seed,
        made_with=made_with or {},
        progress=progress or Progress(None),
    )
    rollouts = Rollouts(run=run, source=source, train_dataset=[None])  # the rollouts know their tasks
    steps = Steps(run=run, ledger=ledger, rollouts=rollouts, observers=observers)
    return AlgorithmContext(rollouts=rollouts, steps=steps, servers=NoServers())


def train_recorded(
    algorithm: Algorithm | AlgorithmFunction,
    recording: Path,
    folder: Path,
    *,
    run_id: str | None = None,
    seed: int = 0,
    observers: Sequence[StepObserver] = (),
    progress: bool = False,
) -> MemoryLedger:
    """Train on the rollouts of a run that was recorded; needs no Kafka.

    With the run's model, algorithm and seed, each step has the groups that it had, and the weights are the same to the
    bit (on the same machine, with the same number of threads). There is no validation.

    Args:
        algorithm: as for a ``Trainer``.
        recording: a file of ``lightstream export recording``, or of :func:`write_recording`.
        folder: where the checkpoints go, under ``checkpoints/<run_id>``.
        run_id: which run of the recording; ``None``: it has one alone.
        seed: the run's.
        observers: called after each step.
        progress: print a line for each step.

    Returns:
        The ledger: its ``steps`` and ``resources`` name the checkpoints.

    Raises:
        TrainingError: the recording cannot be read or has several runs, the folder has checkpoints of this run
            already (nothing has changed); or a step could not be made: what came before stays in the folder.
    """
    trajectories = read_recording(recording)
    run_id = _only_run(recording, trajectories) if run_id is None else run_id
    if (folder / "checkpoints" / run_id).exists():
        raise TrainingError(
            f"{folder} has checkpoints of run {run_id!r} already.", next_step="Name a folder that has none."
        )
    ledger = MemoryLedger(trainer_id=run_id, run_id=run_id)
    chosen = as_algorithm(algorithm)
    context = recorded_context(
        trajectories,
        settings=Settings.load(data_dir=folder),
        ledger=ledger,
        history=ledger.open(),
        run_id=run_id,
        seed=seed,
        observers=observers,
        progress=Progress(print if progress else None),
        made_with=chosen.made_with(),
    )
    chosen.run(context)
    return ledger


def _only_run(recording: Path, trajectories: Sequence[Trajectory]) -> str:
    runs = sorted({trajectory.run_id for trajectory in trajectories})
    if len(runs) != 1:
        raise TrainingError(
            f"{recording} has {len(runs)} runs{': ' if runs else ''}{', '.join(runs)}.",
            next_step="Name one of them: run_id=...",
        )
    return runs[0]


def _packed(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).decode("ascii")


def _trajectory(line: dict[str, Any]) -> Trajectory:
    for triplet in line["triplets"]:
        for name in PACKED:
            if triplet[name] is not None:
                triplet[name] = base64.urlsafe_b64decode(triplet[name])
    line["images"] = [base64.urlsafe_b64decode(image) for image in line.get("images", [])]
    return Trajectory.model_validate(line)
