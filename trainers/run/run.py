"""A run: its names, its settings and its past."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lightstream.runtime.clock import Clock, SystemClock
from lightstream.runtime.settings import Settings
from lightstream.schemas.records import ResourcesRecord

from .checkpoint import CheckpointFolder, folder_of, run_checkpoints
from .history import History
from .progress import Progress


@dataclass(frozen=True, kw_only=True)
class Run:
    """The facts of a run that hold from its beginning to its end. Nobody changes it; the ledger keeps its history up to
    date.

    Attributes:
        settings: the cluster, the topics, the folders.
        run_id, trainer_id: names of this training, the same after a restart.
        history: what was committed.
        seed: for everything random.
        made_with: what the run is made with; goes into its records.
        progress: lines for whoever watches.
        clock: tells the time.
    """

    settings: Settings
    run_id: str
    trainer_id: str
    history: History
    seed: int = 0
    made_with: Mapping[str, str] = field(default_factory=dict[str, str])
    progress: Progress = field(default_factory=lambda: Progress(None))
    clock: Clock = field(default_factory=SystemClock)

    @property
    def last_step(self) -> int:
        """The last committed step, 0 before the first."""
        return self.history.last_step

    @property
    def resources(self) -> ResourcesRecord | None:
        """The latest resources of this run."""
        return self.history.resources

    @property
    def checkpoints(self) -> CheckpointFolder:
        """The folder of this run's checkpoints."""
        return run_checkpoints(self.settings, self.run_id)

    def folder_of(self, address: str) -> Path:
        """The folder of a checkpoint that a record names; it may be gone."""
        return folder_of(self.settings, address)

    def now(self) -> int:
        """Nanoseconds since 1970."""
        return self.clock.now_unix_nano()
