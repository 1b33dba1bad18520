"""Rollouts, attempts, tasks, workers."""

from __future__ import annotations

from lightstream.producers import Hook, ParallelWorkerBase
from lightstream.schemas.types import (
    Attempt,
    AttemptedRollout,
    AttemptStatus,
    EnqueueRolloutRequest,
    GenericResponse,
    PaginatedResult,
    Rollout,
    RolloutConfig,
    RolloutLegacy,
    RolloutMode,
    RolloutStatus,
    Task,
    TaskIfAny,
    TaskInput,
    Triplet,
    Worker,
    WorkerStatus,
)
from lightstream.trainers.tasks import Dataset

__all__ = [
    "Attempt",
    "AttemptStatus",
    "AttemptedRollout",
    "Dataset",
    "EnqueueRolloutRequest",
    "GenericResponse",
    "Hook",
    "PaginatedResult",
    "ParallelWorkerBase",
    "Rollout",
    "RolloutConfig",
    "RolloutLegacy",
    "RolloutMode",
    "RolloutStatus",
    "Task",
    "TaskIfAny",
    "TaskInput",
    "Triplet",
    "Worker",
    "WorkerStatus",
]
