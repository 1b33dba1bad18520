"""Agent Lightning's public names, from here: ``import lightstream.agl as agl`` in place of ``agentlightning``.

Nothing is imported until it is used. The dotted paths that people import from are modules below
(``lightstream.agl.adapter``, ``.emitter``, ``.semconv``, ``.store``, ``.tracer``, ``.types``, ``.utils.otel``, …).
What has no counterpart of the same name says what to use instead.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ._names import ABSENT, FLAT

if TYPE_CHECKING:
    from lightstream.producers import (
        Hook,
        LitAgent,
        LLMProxy,
        ParallelWorkerBase,
        Runner,
        emit_annotation,
        emit_exception,
        emit_message,
        emit_object,
        emit_reward,
        find_final_reward,
        find_reward_spans,
        get_message_value,
        get_object_value,
        get_reward_value,
        get_rewards_from_span,
        is_reward_span,
        llm_rollout,
        operation,
        prompt_rollout,
        reward,
        rollout,
    )
    from lightstream.producers.tracer import (
        AgentOpsTracer,
        DummyTracer,
        OtelTracer,
        Tracer,
        clear_active_tracer,
        get_active_tracer,
        set_active_tracer,
    )
    from lightstream.schemas.interfaces import LightningStore
    from lightstream.schemas.types import (
        LLM,
        Attempt,
        AttemptedRollout,
        AttemptStatus,
        Attributes,
        AttributeValue,
        EnqueueRolloutRequest,
        Event,
        GenericResponse,
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
        RolloutConfig,
        RolloutLegacy,
        RolloutMode,
        RolloutStatus,
        Span,
        SpanContext,
        SpanCoreFields,
        SpanLike,
        SpanRecordingContext,
        StatusCode,
        Task,
        TaskIfAny,
        TaskInput,
        TraceState,
        TraceStatus,
        Triplet,
        Worker,
        WorkerStatus,
    )
    from lightstream.store_views.stores import InMemoryLightningStore, KafkaLightningStore
    from lightstream.store_views.stores.http import (
        AgentLightningClient,
        AgentLightningServer,
        LightningStoreClient,
    )
    from lightstream.stream_processors.adapters import (
        Adapter,
        LlmProxyTraceToTriplet,
        OtelTraceAdapter,
        TraceAdapter,
        TracerTraceToTriplet,
        TraceToMessages,
        TraceToTripletBase,
    )
    from lightstream.trainers import VERL
    from lightstream.trainers.tasks import Dataset

    from ._algorithm import Algorithm, Baseline, FastAlgorithm, algo
    from ._lit_agent_runner import LitAgentRunner
    from ._trainer import Trainer
    from .store.client_server import LightningStoreServer

__all__ = [
    "LLM",
    "VERL",
    "Adapter",
    "AgentLightningClient",
    "AgentLightningServer",
    "AgentOpsTracer",
    "Algorithm",
    "Attempt",
    "AttemptStatus",
    "AttemptedRollout",
    "AttributeValue",
    "Attributes",
    "Baseline",
    "Dataset",
    "DummyTracer",
    "EnqueueRolloutRequest",
    "Event",
    "FastAlgorithm",
    "GenericResponse",
    "Hook",
    "InMemoryLightningStore",
    "KafkaLightningStore",
    "LLMProxy",
    "LightningStore",
    "LightningStoreCapabilities",
    "LightningStoreClient",
    "LightningStoreServer",
    "LightningStoreStatistics",
    "Link",
    "LitAgent",
    "LitAgentRunner",
    "LlmProxyTraceToTriplet",
    "NamedResources",
    "OtelResource",
    "OtelTraceAdapter",
    "OtelTracer",
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
    "RolloutStatus",
    "Runner",
    "Span",
    "SpanContext",
    "SpanCoreFields",
    "SpanLike",
    "SpanRecordingContext",
    "StatusCode",
    "Task",
    "TaskIfAny",
    "TaskInput",
    "TraceAdapter",
    "TraceState",
    "TraceStatus",
    "TraceToMessages",
    "TraceToTripletBase",
    "Tracer",
    "TracerTraceToTriplet",
    "Trainer",
    "Triplet",
    "Worker",
    "WorkerStatus",
    "algo",
    "clear_active_tracer",
    "emit_annotation",
    "emit_exception",
    "emit_message",
    "emit_object",
    "emit_reward",
    "find_final_reward",
    "find_reward_spans",
    "get_active_tracer",
    "get_message_value",
    "get_object_value",
    "get_reward_value",
    "get_rewards_from_span",
    "is_reward_span",
    "llm_rollout",
    "operation",
    "prompt_rollout",
    "reward",
    "rollout",
    "set_active_tracer",
]


def __getattr__(name: str) -> Any:
    module = FLAT.get(name)
    if module is not None:
        value = getattr(import_module(module), name)
        globals()[name] = value
        return value
    if name in ABSENT:
        raise AttributeError(f"{__name__} has no {name}; instead: {ABSENT[name]}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *FLAT})
