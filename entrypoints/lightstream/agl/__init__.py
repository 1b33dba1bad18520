"""Agent Lightning's public names, from here: ``import lightstream.agl as agl`` in place of ``agentlightning``.

Nothing is imported until it is used. The dotted paths that people import from are modules below
(``lightstream.agl.adapter``, ``.emitter``, ``.semconv``, ``.store``, ``.tracer``, ``.types``, ``.utils.otel``, …).
A name without a counterpart says what to use instead.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ._names import ABSENT, FLAT

if TYPE_CHECKING:
    from lightstream.producers import (
        Hook,
        LitAgent,
        ParallelWorkerBase,
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
    from lightstream.store_views.stores import KafkaLightningStore
    from lightstream.store_views.stores.http import (
        AgentLightningClient,
        AgentLightningServer,
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
    from lightstream.trainers.tasks import Dataset

    from .algorithm import VERL, Algorithm, Baseline, FastAlgorithm, algo
    from .client import DevTaskLoader
    from .config import lightning_cli
    from .env_var import LightningEnvVar, resolve_bool_env_var, resolve_int_env_var, resolve_str_env_var
    from .execution import (
        ClientServerExecutionStrategy,
        ExecutionEvent,
        ExecutionStrategy,
        MultiprocessingEvent,
        SharedMemoryExecutionStrategy,
        ThreadingEvent,
    )
    from .llm_proxy import LLMProxy
    from .logging import configure_logger, setup_logging, setup_module_logging
    from .runner import LegacyAgentRunner, LitAgentRunner, Runner
    from .store import InMemoryLightningStore, LightningStoreClient, LightningStoreServer, LightningStoreThreaded
    from .trainer import Trainer, build_component
    from .types import (
        FilterField,
        FilterOptions,
        RolloutRawResult,
        RolloutRawResultLegacy,
        SortOptions,
        SpanAttributeNames,
        SpanNames,
    )

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
    "ClientServerExecutionStrategy",
    "Dataset",
    "DevTaskLoader",
    "DummyTracer",
    "EnqueueRolloutRequest",
    "Event",
    "ExecutionEvent",
    "ExecutionStrategy",
    "FastAlgorithm",
    "FilterField",
    "FilterOptions",
    "GenericResponse",
    "Hook",
    "InMemoryLightningStore",
    "KafkaLightningStore",
    "LLMProxy",
    "LegacyAgentRunner",
    "LightningEnvVar",
    "LightningStore",
    "LightningStoreCapabilities",
    "LightningStoreClient",
    "LightningStoreServer",
    "LightningStoreStatistics",
    "LightningStoreThreaded",
    "Link",
    "LitAgent",
    "LitAgentRunner",
    "LlmProxyTraceToTriplet",
    "MultiprocessingEvent",
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
    "RolloutRawResult",
    "RolloutRawResultLegacy",
    "RolloutStatus",
    "Runner",
    "SharedMemoryExecutionStrategy",
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
    "ThreadingEvent",
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
    "build_component",
    "clear_active_tracer",
    "configure_logger",
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
    "lightning_cli",
    "llm_rollout",
    "operation",
    "prompt_rollout",
    "resolve_bool_env_var",
    "resolve_int_env_var",
    "resolve_str_env_var",
    "reward",
    "rollout",
    "set_active_tracer",
    "setup_logging",
    "setup_module_logging",
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
