"""Where each name of Agent Lightning's public interface (0.3.0) is here."""

from __future__ import annotations

__all__ = ["ABSENT", "FLAT", "PUBLIC"]

_AGL = "lightstream.agl."
_ADAPTERS = "lightstream.stream_processors.adapters"
_PRODUCERS = "lightstream.producers"
_TRACERS = "lightstream.producers.tracer"
_INTERFACES = "lightstream.schemas.interfaces"
_STORES = "lightstream.store_views.stores"
_STORES_HTTP = "lightstream.store_views.stores.http"
_TRAINERS = "lightstream.trainers"
_TYPES = "lightstream.schemas.types"

FLAT: dict[str, str] = {
    name: module
    for module, names in {
        _ADAPTERS: "Adapter LlmProxyTraceToTriplet OtelTraceAdapter TraceAdapter TraceToMessages TraceToTripletBase "
        "TracerTraceToTriplet",
        _INTERFACES: "LightningStore",
        _PRODUCERS: "Hook LLMProxy LitAgent ParallelWorkerBase Runner emit_annotation emit_exception emit_message "
        "emit_object emit_reward find_final_reward find_reward_spans get_message_value get_object_value "
        "get_reward_value get_rewards_from_span is_reward_span llm_rollout operation prompt_rollout reward rollout",
        _STORES: "InMemoryLightningStore KafkaLightningStore",
        _STORES_HTTP: "AgentLightningClient AgentLightningServer LightningStoreClient",
        _TRACERS: "AgentOpsTracer DummyTracer OtelTracer Tracer clear_active_tracer get_active_tracer "
        "set_active_tracer",
        _TRAINERS: "VERL",
        f"{_AGL}_algorithm": "Algorithm Baseline FastAlgorithm algo",
        f"{_AGL}_lit_agent_runner": "LitAgentRunner",
        f"{_AGL}_trainer": "Trainer",
        f"{_AGL}store.client_server": "LightningStoreServer",
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
    "APO": "an algorithm of your own is a function of lightstream.trainers.AlgorithmContext (lightstream.agl.algo)",
    "ClientServerExecutionStrategy": "Runners are processes of their own: Trainer(n_runners=…)",
    "CollectionBasedLightningStore": "stores here are folds over the log: InMemoryLightningStore, KafkaLightningStore",
    "DevTaskLoader": "InMemoryLightningStore holds tasks without a server",
    "ExecutionEvent": "Runner.stop() ends a Runner",
    "ExecutionStrategy": "Runners are processes of their own: Trainer(n_runners=…)",
    "FilterField": "a store's queries take their filters as arguments",
    "FilterOptions": "a store's queries take their filters as arguments",
    "LegacyAgentRunner": "lightstream.producers.Runner",
    "LightningEnvVar": "settings are LIGHTSTREAM_… variables: lightstream.schemas.settings",
    "LightningStoreThreaded": "every store here is safe for use from several threads",
    "MultiprocessingEvent": "Runner.stop() ends a Runner",
    "RolloutRawResult": "lightstream.producers.agent.RolloutResult",
    "RolloutRawResultLegacy": "lightstream.producers.agent.RolloutResult",
    "SharedMemoryExecutionStrategy": "Runners are processes of their own: Trainer(n_runners=…)",
    "SortOptions": "a store's queries take sort_by and sort_order",
    "SpanAttributeNames": "lightstream.agl.semconv",
    "SpanNames": "lightstream.agl.semconv",
    "ThreadingEvent": "Runner.stop() ends a Runner",
    "build_component": "parts are made by their own classes",
    "configure_logger": "logging.basicConfig",
    "lightning_cli": "the command line `lightstream`",
    "resolve_bool_env_var": "lightstream.schemas.settings",
    "resolve_int_env_var": "lightstream.schemas.settings",
    "resolve_str_env_var": "lightstream.schemas.settings",
    "setup_logging": "logging.basicConfig",
    "setup_module_logging": "logging.basicConfig",
}
"""Name -> what to use instead. Everything of Agent Lightning that has no counterpart of the same name."""

PUBLIC = sorted({*FLAT, *ABSENT} - {"KafkaLightningStore"})
"""Every public name of agentlightning 0.3.0."""
