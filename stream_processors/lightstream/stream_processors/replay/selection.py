"""Which attempts of the history are replayed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from lightstream.schemas.records import AttemptOpened, Trajectory

from .log import LogEntry

__all__ = ["AttemptKey", "Selection"]

AttemptKey: TypeAlias = tuple[str, str]
"""(rollout id, attempt id)."""


@dataclass(frozen=True, slots=True)
class Selection:
    """All of these must hold.

    Attributes:
        from_unix_nano, to_unix_nano: the attempt's opening was logged since the one and before the other; ``None``: it
            may be any later.
        run_id: the run; ``None``: any.
        attempts: the attempts; ``None``: any.
    """

    from_unix_nano: int = 0
    to_unix_nano: int | None = None
    run_id: str | None = None
    attempts: frozenset[AttemptKey] | None = None

    def opens(self, entry: LogEntry) -> bool:
        """False for the opening of an attempt that comes too late: without it, the attempt is not assembled."""
        if self.to_unix_nano is None or not isinstance(entry.record, AttemptOpened):
            return True
        return entry.logged_unix_nano < self.to_unix_nano

    def has(self, trajectory: Trajectory) -> bool:
        """Whether run and attempt are among those asked for."""
        if self.run_id is not None and trajectory.run_id != self.run_id:
            return False
        return self.attempts is None or (trajectory.rollout_id, trajectory.attempt_id) in self.attempts
