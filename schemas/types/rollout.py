"""Rollouts, their attempts, the workers that run them, and the status of each."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import AfterValidator, ConfigDict, Field, StringConstraints, model_validator

from lightstream.schemas.assembly_rules import RULE_CHARACTERS_MAX, RewardMatchName, checked_credit, checked_expression

from .base import JsonModel, absent

RolloutStatus: TypeAlias = Literal["queuing", "preparing", "running", "failed", "succeeded", "cancelled", "requeuing"]
"""A rollout waits (queuing; requeuing, for a retry), was dispatched (preparing), gave its first sign of life
(running), or is over (failed, succeeded, cancelled), which nothing changes."""

AttemptStatus: TypeAlias = Literal["preparing", "running", "failed", "succeeded", "unresponsive", "timeout"]
"""``unresponsive``: no sign of life for too long; may return to running. ``timeout``: over its deadline."""

RolloutMode: TypeAlias = Literal["train", "val", "test"]
WorkerStatus: TypeAlias = Literal["idle", "busy", "unknown"]

FINISHED: frozenset[RolloutStatus] = frozenset({"failed", "succeeded", "cancelled"})
"""Statuses that end a rollout."""


class RolloutConfig(JsonModel):
    """Deadlines and retries. A limit of ``None`` means the store's own, which is finite.

    Attributes:
        timeout_seconds: an attempt's deadline, from its start.
        unresponsive_seconds: silence after which an attempt counts as lost.
        max_attempts: the first included.
        retry_condition: attempts that end in these are followed by another, while ``max_attempts`` allows.
        priority: of waiting rollouts, the highest is dispatched first; then retries, then the oldest.
    """

    timeout_seconds: float | None = Field(default=None, ge=0)
    unresponsive_seconds: float | None = Field(default=None, ge=0)
    max_attempts: int = Field(default=1, ge=1)
    retry_condition: list[AttemptStatus] = []
    priority: int = Field(default=0, ge=-(2**31 - 1), le=2**31 - 1, exclude_if=lambda priority: priority == 0)


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


_SHORT = StringConstraints(max_length=RULE_CHARACTERS_MAX)


class Assembly(JsonModel):
    """Rules of assembly in place of the worker's settings; ``None`` leaves the setting.

    Attributes:
        credit: how rewards are assigned to calls: a rule's name, or ``module:function`` of the worker's.
        reward_match: what a reward without a link is for.
        trained_agents: regular expression of the agents whose calls are trained on; empty means all.

    Raises:
        ValueError: there is no such rule, or the expression is none.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    credit: Annotated[str, _SHORT, AfterValidator(checked_credit)] | None = None
    reward_match: RewardMatchName | None = None
    trained_agents: Annotated[str, _SHORT, AfterValidator(checked_expression)] | None = None


TaskInput: TypeAlias = Any
"""A task: any JSON value."""


class Rollout(JsonModel):
    """A task to run, and where it stands.

    ``group_size`` rollouts share a ``group_id`` (the samples of one task); ``run_id`` names the training run, and
    ``assembly`` its rules where they are not the worker's.
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
    assembly: Assembly | None = Field(default=None, exclude_if=absent)


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
    ``group_id`` are the samples of one task. ``assembly`` has rules for it in place of the worker's settings.
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
    assembly: Assembly | None = Field(default=None, exclude_if=absent)


class Worker(JsonModel):
    """A worker as it last reported (times in seconds since 1970).

    ``status`` follows from what it does in the store: ``busy`` from a rollout's dispatch until the attempt's end,
    then ``idle``; ``unknown`` after an attempt that it lost.
    """

    worker_id: str
    status: WorkerStatus = "unknown"
    heartbeat_stats: dict[str, Any] | None = None
    last_heartbeat_time: float | None = None
    last_dequeue_time: float | None = None
    last_busy_time: float | None = None
    last_idle_time: float | None = None
    current_rollout_id: str | None = None
    current_attempt_id: str | None = None
