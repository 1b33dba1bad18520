"""Rollouts as agents and algorithms see them (times in seconds since 1970)."""

from __future__ import annotations

from typing import Any, Self, TypeAlias

from pydantic import Field, model_validator

from .attempt import Attempt
from .config import RolloutConfig
from .json_model import JsonModel
from .optional import absent
from .status import RolloutMode, RolloutStatus

__all__ = ["AttemptedRollout", "EnqueueRolloutRequest", "Rollout", "TaskInput"]

TaskInput: TypeAlias = Any
"""A task: any JSON value."""


class Rollout(JsonModel):
    """A task to run, and where it stands.

    ``group_size`` rollouts share a ``group_id`` (the samples of one task); ``run_id`` names the training run.
    """

    rollout_id: str
    input: TaskInput
    start_time: float
    end_time: float | None = None
    mode: RolloutMode | None = None
    resources_id: str | None = None
    status: RolloutStatus = "queuing"
    config: RolloutConfig = Field(default_factory=RolloutConfig)
    metadata: dict[str, Any] | None = None
    run_id: str | None = Field(default=None, exclude_if=absent)
    group_id: str | None = Field(default=None, exclude_if=absent)
    group_size: int | None = Field(default=None, exclude_if=absent)


class AttemptedRollout(Rollout):
    """A rollout together with its latest attempt."""

    attempt: Attempt

    @model_validator(mode="after")
    def _same_rollout(self) -> Self:
        if self.attempt.rollout_id != self.rollout_id:
            raise ValueError(f"rollout {self.rollout_id} has an attempt of rollout {self.attempt.rollout_id}")
        return self


class EnqueueRolloutRequest(JsonModel):
    """One rollout to enqueue.

    ``rollout_id`` makes the request repeatable: the same id is the same rollout. ``group_size`` requests with one
    ``group_id`` are the samples of one task.
    """

    input: TaskInput
    mode: RolloutMode | None = None
    resources_id: str | None = None
    config: RolloutConfig | None = None
    metadata: dict[str, Any] | None = None
    rollout_id: str | None = Field(default=None, exclude_if=absent)
    run_id: str | None = Field(default=None, exclude_if=absent)
    group_id: str | None = Field(default=None, exclude_if=absent)
    group_size: int | None = Field(default=None, ge=1, exclude_if=absent)
