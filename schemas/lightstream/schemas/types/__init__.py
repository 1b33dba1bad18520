"""What agents and algorithms handle, named and shaped as in Agent Lightning. One concept a module."""

from .attempt import Attempt
from .config import RolloutConfig
from .legacy import GenericResponse, RolloutLegacy, Task, TaskIfAny
from .page import PaginatedResult
from .positions import LogPositions
from .resources import (
    LLM,
    Artefact,
    NamedResources,
    PromptTemplate,
    ProxyLLM,
    Resource,
    ResourcesUpdate,
    ResourceUnion,
    resource_adapter,
)
from .rollout import AttemptedRollout, EnqueueRolloutRequest, Rollout, TaskInput
from .span import VIRTUAL_SPAN_NAME, Span, SpanLike
from .span_core import SpanCoreFields, SpanRecordingContext
from .span_parts import (
    Attributes,
    AttributeValue,
    Event,
    Link,
    OtelResource,
    SpanContext,
    TraceState,
    TraceStatus,
)
from .statistics import LightningStoreCapabilities, LightningStoreStatistics
from .status import FINISHED, AttemptStatus, RolloutMode, RolloutStatus, StatusCode, WorkerStatus
from .triplet import Triplet
from .unset import UNSET, Unset
from .worker import Worker

__all__ = [
    "FINISHED",
    "LLM",
    "UNSET",
    "VIRTUAL_SPAN_NAME",
    "Artefact",
    "Attempt",
    "AttemptStatus",
    "AttemptedRollout",
    "AttributeValue",
    "Attributes",
    "EnqueueRolloutRequest",
    "Event",
    "GenericResponse",
    "LightningStoreCapabilities",
    "LightningStoreStatistics",
    "Link",
    "LogPositions",
    "NamedResources",
    "OtelResource",
    "PaginatedResult",
    "PromptTemplate",
    "ProxyLLM",
    "Resource",
    "ResourceUnion",
    "ResourcesUpdate",
    "Rollout",
    "RolloutConfig",
    "RolloutLegacy",
    "RolloutMode",
    "RolloutStatus",
    "Span",
    "SpanContext",
    "SpanCoreFields",
    "SpanLike",
    "SpanRecordingContext",
    "StatusCode",
    "Task",
    "TaskIfAny",
    "TaskInput",
    "TraceState",
    "TraceStatus",
    "Triplet",
    "Unset",
    "Worker",
    "WorkerStatus",
    "resource_adapter",
]
