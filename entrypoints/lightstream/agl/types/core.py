"""``agentlightning.types.core``: rollouts, attempts, tasks, workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypedDict

from opentelemetry.sdk.trace import ReadableSpan

from lightstream.producers import Hook, ParallelWorkerBase
from lightstream.producers.agent import RolloutResult
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
    "FilterField",
    "FilterOptions",
    "GenericResponse",
    "Hook",
    "PaginatedResult",
    "ParallelWorkerBase",
    "Rollout",
    "RolloutConfig",
    "RolloutLegacy",
    "RolloutMode",
    "RolloutRawResult",
    "RolloutRawResultLegacy",
    "RolloutStatus",
    "SortOptions",
    "Task",
    "TaskIfAny",
    "TaskInput",
    "Triplet",
    "Worker",
    "WorkerStatus",
]

RolloutRawResult: TypeAlias = RolloutResult
"""What an agent returns."""

RolloutRawResultLegacy: TypeAlias = (
    float | list[Triplet] | list[dict[str, Any]] | list[ReadableSpan] | RolloutLegacy | None
)
"""What an agent returns to a Runner of the first protocol."""


class FilterField(TypedDict, total=False):
    """What a field must be. Stores' queries here take their filters as arguments (``status_in=…``)."""

    exact: Any
    within: Sequence[Any]
    contains: str


FilterOptions: TypeAlias = Mapping[str, FilterField | Literal["and", "or"] | Mapping[str, FilterField]]
"""Field -> what it must be; ``_aggregate`` says whether all or one must hold, ``_must`` holds what must in any case."""


class SortOptions(TypedDict):
    """By which field to sort. Stores' queries here take it as ``sort_by`` and ``sort_order``."""

    name: str
    order: Literal["asc", "desc"]
