"""Messages of Agent Lightning's 0.1 protocol (``/task``, ``/rollout``); times in seconds since 1970."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from lightstream.schemas.types import JsonModel, Triplet

__all__ = ["ERROR_MESSAGE", "ERROR_TYPE", "GenericResponse", "RolloutLegacy", "Task", "TaskIfAny"]


ERROR_TYPE = "lightstream.error_type"
"""In a report's metadata: why the agent failed (an extension: the protocol knows no failure)."""

ERROR_MESSAGE = "lightstream.error_message"


class Task(JsonModel):
    """A rollout to run.

    Attributes:
        num_claims: how often it was dispatched, this time included.
    """

    rollout_id: str
    input: Any
    mode: str | None = None
    resources_id: str | None = None
    create_time: float | None = None
    last_claim_time: float | None = None
    num_claims: int | None = None
    metadata: dict[str, Any] = {}


class TaskIfAny(JsonModel):
    """A task, if there is one."""

    is_available: bool
    task: Task | None = None


class RolloutLegacy(JsonModel):
    """An agent's report of a task it ran.

    Attributes:
        task: the task as it was received.
        final_reward: of the whole rollout; ``None`` is missing.
        triplets: its calls; where they are missing, they are read from ``trace``.
        trace: spans as ``json.loads(readable_span.to_json())`` gives them.
    """

    rollout_id: str
    task: Task | None = None
    final_reward: float | None = None
    triplets: list[Triplet] | None = None
    trace: list[dict[str, Any]] | None = None
    logs: list[str] | None = None
    metadata: dict[str, Any] = Field(default_factory=dict)


class GenericResponse(JsonModel):
    """The outcome of a request."""

    status: str = "success"
    message: str | None = None
    data: dict[str, Any] | None = None
