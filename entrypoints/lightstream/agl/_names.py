"""Agent Lightning's flat public names (0.3.0): where each is here, or what to use instead."""

from __future__ import annotations

__all__ = ["ABSENT", "FLAT", "PUBLIC"]

_AGL = "lightstream.agl."
_ADAPTERS = "lightstream.stream_processors.adapters"
_PRODUCERS = "lightstream.producers"
_TRACERS = "lightstream.producers.tracer"
_INTERFACES = "lightstream.schemas.interfaces"
_STORES = "lightstream.store_views.stores"
_STORES_HTTP = "lightstream.store_views.stores.http"
_TYPES = "lightstream.schemas.types"

FLAT: dict[str, str] = {
    name: module
    for module, names in {
        _ADAPTERS: "Adapter LlmProxyTraceToTriplet OtelTraceAdapter TraceAdapter TraceToMessages TraceToTripletBase "
        "TracerTraceToTriplet",
        _INTERFACES: "LightningStore",
        _PRODUCERS: "Hook LitAgent ParallelWorkerBase emit_annotation emit_exception emit_message "
        "emit_object emit_reward find_final_reward find_reward_spans get_message_value get_object_value "
        "get_reward_value get_rewards_from_span is_reward_span llm_rollout operation prompt_rollout reward rollout",
        _STORES: "KafkaLightningStore",
        _STORES_HTTP: "AgentLightningClient AgentLightningServer",
        _TRACERS: "AgentOpsTracer DummyTracer OtelTracer Tracer clear_active_tracer get_active_tracer "
        "set_active_tracer",
        f"{_AGL}algorithm": "Algorithm Baseline FastAlgorithm VERL algo",
        f"{_AGL}client": "DevTaskLoader",
        f"{_AGL}config": "lightning_cli",
        f"{_AGL}env_var": "LightningEnvVar resolve_bool_env_var resolve_int_env_var resolve_str_env_var",
        f"{_AGL}execution": "ClientServerExecutionStrategy ExecutionEvent ExecutionStrategy MultiprocessingEvent "
        "SharedMemoryExecutionStrategy ThreadingEvent",
        f"{_AGL}logging": "configure_logger setup_logging setup_module_logging",
        f"{_AGL}runner": "LegacyAgentRunner LitAgentRunner Runner",
        f"{_AGL}llm_proxy": "LLMProxy",
        f"{_AGL}store": "InMemoryLightningStore LightningStoreClient LightningStoreServer LightningStoreThreaded",
        f"{_AGL}trainer": "Trainer build_component",
        f"{_AGL}types": "FilterField FilterOptions RolloutRawResult RolloutRawResultLegacy SortOptions "
        "SpanAttributeNames SpanNames",
        "lightstream.trainers.tasks": "Dataset",
        _TYPES: "Attempt AttemptStatus AttemptedRollout AttributeValue Attributes EnqueueRolloutRequest Event "
        "GenericResponse LLM LightningStoreCapabilities LightningStoreStatistics Link NamedResources OtelResource "
        "PaginatedResult PromptTemplate ProxyLLM Resource ResourceUnion ResourcesUpdate Rollout RolloutConfig "
        "RolloutLegacy RolloutMode RolloutStatus Span SpanContext SpanCoreFields SpanLike SpanRecordingContext "
        "StatusCode Task TaskIfAny TaskInput TraceState TraceStatus Triplet Worker WorkerStatus",
    }.items()
    for name in names.split()
}
"""Name -> the module that has it."""

ABSENT: dict[str, str] = {
    "APO": "an algorithm of your own: `lightstream.agl.algo`, or `lightstream.trainers.algo` to train",
    "CollectionBasedLightningStore": "`InMemoryLightningStore`, `KafkaLightningStore`: stores are folds over the log",
}
"""Name -> what to use instead. Everything of Agent Lightning that has no counterpart of the same name."""

PUBLIC = sorted({*FLAT, *ABSENT} - {"KafkaLightningStore"})
"""Every public name of agentlightning 0.3.0."""
