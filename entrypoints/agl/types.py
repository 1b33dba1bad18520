"""Types that agents and algorithms handle."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, Literal, TypeAlias, TypedDict

from opentelemetry.sdk.trace import ReadableSpan
from pydantic import Field, field_validator

from lightstream.producers import Hook, ParallelWorkerBase, semconv
from lightstream.producers.agent import RolloutResult
from lightstream.schemas.types import (
    LLM,
    Attempt,
    AttemptedRollout,
    AttemptStatus,
    Attributes,
    AttributeValue,
    EnqueueRolloutRequest,
    Event,
    LightningStoreCapabilities,
    LightningStoreStatistics,
    Link,
    NamedResources,
    OtelResource,
    PaginatedResult,
    PromptTemplate,
    ProxyLLM,
    Resource,
    ResourcesUpdate,
    ResourceUnion,
    Rollout,
    RolloutMode,
    RolloutStatus,
    Span,
    SpanContext,
    SpanCoreFields,
    SpanLike,
    SpanRecordingContext,
    StatusCode,
    TaskInput,
    TraceState,
    TraceStatus,
    Triplet,
    Worker,
    WorkerStatus,
)
from lightstream.schemas.types import RolloutConfig as _RolloutConfig
from lightstream.trainers.run.tasks import Dataset

from ._names import add_parts
from .first_protocol.messages import GenericResponse, RolloutLegacy, Task, TaskIfAny

__all__ = [
    "LLM",
    "Attempt",
    "AttemptStatus",
    "AttemptedRollout",
    "AttributeValue",
    "Attributes",
    "Dataset",
    "EnqueueRolloutRequest",
    "Event",
    "FilterField",
    "FilterOptions",
    "GenericResponse",
    "Hook",
    "LightningStoreCapabilities",
    "LightningStoreStatistics",
    "Link",
    "NamedResources",
    "OtelResource",
    "PaginatedResult",
    "ParallelWorkerBase",
    "PromptTemplate",
    "ProxyLLM",
    "Resource",
    "ResourceUnion",
    "ResourcesUpdate",
    "Rollout",
    "RolloutConfig",
    "RolloutLegacy",
    "RolloutMode",
    "RolloutRawResult",
    "RolloutRawResultLegacy",
    "RolloutStatus",
    "SortOptions",
    "Span",
    "SpanAttributeNames",
    "SpanContext",
    "SpanCoreFields",
    "SpanLike",
    "SpanNames",
    "SpanRecordingContext",
    "StatusCode",
    "Task",
    "TaskIfAny",
    "TaskInput",
    "TraceState",
    "TraceStatus",
    "Triplet",
    "Worker",
    "WorkerStatus",
]

RolloutRawResult: TypeAlias = RolloutResult
"""The return value of an agent."""

RolloutRawResultLegacy: TypeAlias = (
    float | list[Triplet] | list[dict[str, Any]] | list[ReadableSpan] | RolloutLegacy | None
)
"""The return value of an agent, for a Runner of the first protocol."""


class RolloutConfig(_RolloutConfig):
    """Deadlines and retries. A limit of ``None`` is none, as in Agent Lightning, and is told as infinity.

    The store's own deadlines hold for rollouts without a configuration.
    """

    timeout_seconds: float | None = Field(default=math.inf, ge=0)
    unresponsive_seconds: float | None = Field(default=math.inf, ge=0)

    @field_validator("timeout_seconds", "unresponsive_seconds")
    @classmethod
    def _unlimited(cls, limit: float | None) -> float:
        return math.inf if limit is None else limit


class FilterField(TypedDict, total=False):
    """A condition on a field. Stores' queries here take their filters as arguments (``status_in=…``)."""

    exact: Any
    within: Sequence[Any]
    contains: str


FilterOptions: TypeAlias = Mapping[str, FilterField | Literal["and", "or"] | Mapping[str, FilterField]]
"""Field -> what it must be; ``_aggregate`` says whether all or one must hold, ``_must`` holds what must in any case."""


class SortOptions(TypedDict):
    """By which field to sort. Stores' queries here take it as ``sort_by`` and ``sort_order``."""

    name: str
    order: Literal["asc", "desc"]


class SpanNames(str, Enum):  # noqa: UP042  # str() gives its name, as there
    """Names from before ``semconv``."""

    REWARD = semconv.AGL_REWARD
    MESSAGE = semconv.AGL_MESSAGE
    OBJECT = semconv.AGL_OBJECT
    EXCEPTION = semconv.AGL_EXCEPTION
    VIRTUAL = semconv.AGL_VIRTUAL
    ROLLOUT_ID = semconv.AGL_ROLLOUT_ID
    ATTEMPT_ID = semconv.AGL_ATTEMPT_ID
    SPAN_SEQUENCE_ID = semconv.AGL_SPAN_SEQUENCE_ID


class SpanAttributeNames(str, Enum):  # noqa: UP042  # str() gives its name, as there
    """Names from before ``semconv``."""

    MESSAGE = "message"
    OBJECT = "object"


RolloutV2 = Rollout
"""Its name in Agent Lightning 0.2."""

add_parts(__name__)
