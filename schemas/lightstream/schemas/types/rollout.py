"""Rollouts as agents see them, in Agent Lightning's shape (times in seconds since 1970)."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from pydantic import BaseModel

from ..records import RolloutConfig

__all__ = ["Attempt", "AttemptedRollout", "Rollout", "RolloutModeName"]

RolloutModeName: TypeAlias = Literal["train", "val", "test"]


class Attempt(BaseModel):
    """One execution of a rollout."""

    rollout_id: str
    attempt_id: str
    sequence_id: int
    start_time: float
    end_time: float | None = None
    status: str = "preparing"
    worker_id: str | None = None
    last_heartbeat_time: float | None = None
    metadata: dict[str, Any] | None = None


class Rollout(BaseModel):
    """A task to run, and where it stands."""

    rollout_id: str
    input: Any
    start_time: float
    end_time: float | None = None
    mode: RolloutModeName | None = None
    resources_id: str | None = None
    status: str = "queuing"
    config: RolloutConfig = RolloutConfig()
    metadata: dict[str, Any] = {}


class AttemptedRollout(Rollout):
    """A rollout together with the attempt that runs it now."""

    attempt: Attempt
