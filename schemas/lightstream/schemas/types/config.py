"""Deadlines and retries of a rollout."""

from __future__ import annotations

from pydantic import Field

from .json_model import JsonModel
from .status import AttemptStatus

__all__ = ["RolloutConfig"]


class RolloutConfig(JsonModel):
    """Deadlines and retries. A limit of ``None`` means the store's own, which is finite.

    Attributes:
        timeout_seconds: an attempt's deadline, from its start.
        unresponsive_seconds: silence after which an attempt counts as lost.
        max_attempts: the first included.
        retry_condition: attempts that end in these are followed by another, while ``max_attempts`` allows.
        priority: of waiting rollouts, the highest is handed out first; then retries, then the oldest.
    """

    timeout_seconds: float | None = Field(default=None, ge=0)
    unresponsive_seconds: float | None = Field(default=None, ge=0)
    max_attempts: int = Field(default=1, ge=1)
    retry_condition: list[AttemptStatus] = []
    priority: int = Field(default=0, ge=-(2**31 - 1), le=2**31 - 1, exclude_if=lambda priority: priority == 0)
