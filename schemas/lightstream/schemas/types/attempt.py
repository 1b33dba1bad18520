"""One execution of a rollout."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from .json_model import JsonModel
from .optional import absent
from .status import AttemptStatus

__all__ = ["Attempt"]


class Attempt(JsonModel):
    """One execution of a rollout (times in seconds since 1970).

    ``sequence_id`` counts a rollout's attempts from 1. ``error_type`` and ``error_message`` say why it failed, if
    its worker said.
    """

    rollout_id: str
    attempt_id: str
    sequence_id: int
    start_time: float
    end_time: float | None = None
    status: AttemptStatus = "preparing"
    worker_id: str | None = None
    last_heartbeat_time: float | None = None
    metadata: dict[str, Any] | None = None
    error_type: str | None = Field(default=None, exclude_if=absent)
    error_message: str | None = Field(default=None, exclude_if=absent)
