"""The attempt of the running code. Follows tasks and copied contexts, so concurrent attempts stay apart."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AttemptRef:
    """An attempt, by name."""

    rollout_id: str
    attempt_id: str


current_attempt: ContextVar[AttemptRef | None] = ContextVar("lightstream_current_attempt", default=None)
"""The attempt that spans started here belong to, or ``None``."""
