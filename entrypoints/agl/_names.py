"""The public names and modules of agentlightning 0.3.0: the package that has each here, or its replacement."""

from __future__ import annotations

import sys
from types import ModuleType

__all__ = ["ABSENT", "ABSENT_MODULES", "ABSENT_NAMES", "DIFFERENT", "FLAT", "MODULES", "OLDER", "PUBLIC", "add_parts"]

_AGL = "lightstream.agl."
_ADAPTERS = "lightstream.stream_processors.adapters"
_PRODUCERS = "lightstream.producers"
_TRACERS = "lightstream.producers.tracer"
_INTERFACES = "lightstream.schemas.interfaces"
_STORES = "lightstream.store_views.stores"
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
        _TRACERS: "AgentOpsTracer DummyTracer OtelTracer Tracer clear_active_tracer get_active_tracer "
        "set_active_tracer",
        f"{_AGL}algorithm": "APO Algorithm Baseline FastAlgorithm GEPA VERL algo",
        f"{_AGL}client": "AgentLightningClient DevTaskLoader",
        f"{_AGL}config": "lightning_cli",
        f"{_AGL}env_var": "LightningEnvVar resolve_bool_env_var resolve_int_env_var resolve_str_env_var",
        f"{_AGL}execution": "ClientServerExecutionStrategy ExecutionEvent ExecutionStrategy MultiprocessingEvent "
        "SharedMemoryExecutionStrategy ThreadingEvent",
        f"{_AGL}logging": "configure_logger setup_logging setup_module_logging",
        f"{_AGL}runner": "LegacyAgentRunner LitAgentRunner Runner",
        f"{_AGL}llm_proxy": "LLMProxy",
        f"{_AGL}server": "AgentLightningServer",
        f"{_AGL}store": "InMemoryLightningStore LightningStoreClient LightningStoreServer LightningStoreThreaded",
        f"{_AGL}trainer": "Trainer build_component",
        f"{_AGL}types": "FilterField FilterOptions GenericResponse RolloutConfig RolloutLegacy RolloutRawResult "
        "RolloutRawResultLegacy SortOptions SpanAttributeNames SpanNames Task TaskIfAny",
        "lightstream.trainers.run.tasks": "Dataset",
        _TYPES: "Attempt AttemptStatus AttemptedRollout AttributeValue Attributes EnqueueRolloutRequest Event "
        "LLM LightningStoreCapabilities LightningStoreStatistics Link NamedResources OtelResource "
        "PaginatedResult PromptTemplate ProxyLLM Resource ResourceUnion ResourcesUpdate Rollout "
        "RolloutMode RolloutStatus Span SpanContext SpanCoreFields SpanLike SpanRecordingContext "
        "StatusCode TaskInput TraceState TraceStatus Triplet Worker WorkerStatus",
    }.items()
    for name in names.split()
}
"""Name -> the module that has it."""

OLDER = {
    "BaseTraceTripletAdapter": f"{_AGL}adapter",
    "RolloutV2": f"{_AGL}types",
    "TraceTripletAdapter": f"{_AGL}adapter",
    "__version__": "lightstream.schemas",
}
"""As :data:`FLAT`, of names that are no part of 0.3's interface but that programs have."""

ABSENT: dict[str, str] = {
    "CollectionBasedLightningStore": "`InMemoryLightningStore`, `KafkaLightningStore`: stores are folds over the log",
}
"""Name -> what to use instead. Everything of Agent Lightning 0.3 that has no counterpart of the same name."""

DIFFERENT: dict[str, str] = {
    "APO": "same arguments, and `name`, `progress` and `seed`; its critiques and edits are asked for in other words",
    "RolloutConfig": "without limits of its own it has none, told as infinity; a rollout without a configuration has "
    "the store's",
    "Trainer": "where the algorithm trains weights it refuses `llm_proxy`, `max_rollouts`, `runner` and "
    "`strategy`, each with what to do instead; `tracer` is an object (each Runner process has a copy), a class or a "
    "function; of `adapter` it takes `LlmProxyTraceToTriplet`, and `TracerTraceToTriplet` with `agent_match` and "
    "`reward_match`, which the assembler goes by, as by `assembly`",
    "VERL": "takes [these keys](agent-lightning/verl-config.md); not `trainer_cls`, `daemon_cls`",
}
"""Name -> in what it is less than there, or other."""

PUBLIC = sorted({*FLAT, *ABSENT} - {"GEPA", "KafkaLightningStore"})
"""Every public name of agentlightning 0.3.0."""


MODULES: dict[str, str] = {
    "adapter": "Adapter LlmProxyTraceToTriplet OtelTraceAdapter TraceAdapter TraceToMessages TraceToTripletBase "
    "TracerTraceToTriplet",
    "adapter.base": "Adapter OtelTraceAdapter TraceAdapter",
    "adapter.messages": "OpenAIMessages TraceToMessages convert_to_openai_messages group_genai_dict",
    "adapter.triplet": "LlmProxyTraceToTriplet RewardMatchPolicy TraceToTripletBase TraceTree TracerTraceToTriplet "
    "Transition",
    "algorithm": "APO Algorithm Baseline FastAlgorithm VERL algo",
    "algorithm.apo": "APO",
    "algorithm.apo.apo": "APO APPLY_EDIT_PROMPT_FILES GRADIENT_PROMPT_FILES RolloutResultForAPO "
    "VersionedPromptTemplate",
    "algorithm.base": "Algorithm",
    "algorithm.decorator": "AlgorithmFunc AlgorithmFuncAsync AlgorithmFuncAsyncFallback AlgorithmFuncAsyncFull "
    "AlgorithmFuncAsyncLike AlgorithmFuncAsyncOnlyDataset AlgorithmFuncAsyncOnlyStore AlgorithmFuncSync "
    "AlgorithmFuncSyncFallback AlgorithmFuncSyncFull AlgorithmFuncSyncLike AlgorithmFuncSyncOnlyDataset "
    "AlgorithmFuncSyncOnlyStore AsyncFlag FunctionalAlgorithm algo",
    "algorithm.fast": "Baseline FastAlgorithm",
    "algorithm.utils": "batch_iter_over_dataset with_llm_proxy with_store",
    "algorithm.verl": "VERL",
    "algorithm.verl.interface": "VERL",
    "cli": "main",
    "cli.prometheus": "create_prometheus_app ensure_prometheus_dir main",
    "cli.store": "main",
    "cli.vllm": "main",
    "client": "AgentLightningClient DevTaskLoader",
    "config": "CliConfigurable lightning_cli nullable_float nullable_int nullable_str",
    "emitter": "emit_annotation emit_exception emit_message emit_object emit_reward find_final_reward "
    "find_reward_spans get_message_value get_object_value get_reward_value get_rewards_from_span is_reward_span "
    "operation reward",
    "emitter.annotation": "OperationContext emit_annotation operation",
    "emitter.exception": "emit_exception",
    "emitter.message": "emit_message get_message_value",
    "emitter.object": "emit_object encode_object get_object_value",
    "emitter.reward": "RewardDimension emit_reward find_final_reward find_reward_spans get_reward_value "
    "get_rewards_from_span is_reward_span reward",
    "env_var": "LightningEnvVar resolve_bool_env_var resolve_int_env_var resolve_str_env_var",
    "execution": "ClientServerExecutionStrategy ExecutionEvent ExecutionStrategy MultiprocessingEvent "
    "SharedMemoryExecutionStrategy ThreadingEvent",
    "execution.base": "AlgorithmBundle ExecutionStrategy RunnerBundle",
    "execution.client_server": "ClientServerExecutionStrategy",
    "execution.events": "ExecutionEvent MultiprocessingEvent ThreadingEvent",
    "execution.inter_process": "InterProcessExecutionStrategy",
    "execution.shared_memory": "SharedMemoryExecutionStrategy",
    "instrumentation": "AGENTOPS_INSTALLED AGENTOPS_LANGCHAIN_INSTALLED LITELLM_INSTALLED VLLM_INSTALLED "
    "WEAVE_INSTALLED instrument_all uninstrument_all",
    "instrumentation.agentops": "BypassableAuthenticatedOTLPExporter BypassableOTLPMetricExporter "
    "BypassableOTLPSpanExporter BypassableV3Client BypassableV4Client enable_agentops_service instrument_agentops "
    "uninstrument_agentops",
    "instrumentation.agentops_langchain": "instrument_agentops_langchain langgraph_entry on_chain_start "
    "original_on_chain_start uninstrument_agentops_langchain",
    "instrumentation.litellm": "instrument_litellm original_set_attributes patched_set_attributes uninstrument_litellm",
    "instrumentation.vllm": "ChatCompletionResponsePatched chat_completion_full_generator instrument_vllm "
    "original_chat_completion_full_generator uninstrument_vllm",
    "instrumentation.weave": "InMemoryWeaveTraceServer get_entity_project_from_project_name_factory get_username "
    "init_weave_get_server_factory instrument_weave uninstrument_weave",
    "litagent": "LitAgent llm_rollout prompt_rollout rollout",
    "litagent.decorator": "FunctionalLitAgent FunctionalLitAgentFunc LlmRolloutFunc LlmRolloutFuncAsync2 "
    "LlmRolloutFuncAsync3 LlmRolloutFuncSync2 LlmRolloutFuncSync3 PromptRolloutFunc PromptRolloutFuncAsync2 "
    "PromptRolloutFuncAsync3 PromptRolloutFuncSync2 PromptRolloutFuncSync3 llm_rollout prompt_rollout rollout",
    "litagent.litagent": "LitAgent is_v0_1_rollout_api",
    "llm_proxy": "AddLogprobs AddReturnTokenIds LLMProxy LightningOpenTelemetry LightningSpanExporter "
    "MessageInspectionMiddleware ModelConfig RolloutAttemptMiddleware StreamConversionMiddleware "
    "get_active_llm_proxy initialize_llm_callbacks set_active_llm_proxy",
    "logging": "DATE_FORMAT DEFAULT_FORMAT configure_logger setup setup_module",
    "reward": "emit_reward find_final_reward find_reward_spans get_reward_value get_rewards_from_span "
    "is_reward_span reward",
    "runner": "LegacyAgentRunner LitAgentRunner Runner",
    "runner.agent": "LitAgentRunner",
    "runner.base": "Runner",
    "runner.legacy": "LegacyAgentRunner",
    "semconv": "AGL_ANNOTATION AGL_EXCEPTION AGL_MESSAGE AGL_OBJECT AGL_OPERATION AGL_REWARD AGL_VIRTUAL "
    "LightningResourceAttributes LightningSpanAttributes LinkAttributes LinkPydanticModel RewardAttributes "
    "RewardPydanticModel",
    "server": "AgentLightningServer ServerDataStore",
    "store": "CollectionBasedLightningStore InMemoryLightningStore LightningStore LightningStoreCapabilities "
    "LightningStoreClient LightningStoreServer LightningStoreStatistics LightningStoreThreaded",
    "store.base": "LightningStore LightningStoreCapabilities LightningStoreStatistics UNSET Unset is_finished "
    "is_queuing is_running",
    "store.client_server": "API_AGL_PREFIX API_V1_AGL_PREFIX API_V1_PREFIX CachedStaticFiles "
    "DequeueManyRolloutsRequest DequeueRolloutRequest EnqueueManyRolloutsRequest LightningStoreClient "
    "LightningStoreServer NextSequenceIdRequest NextSequenceIdResponse QueryAttemptsRequest QueryResourcesRequest "
    "QueryRolloutsRequest QuerySpansRequest QueryWorkersRequest RolloutRequest StartAttemptRequest "
    "UpdateAttemptRequest UpdateRolloutRequest UpdateWorkerRequest WaitForRolloutsRequest",
    "store.collection": "AtomicLabels AtomicMode Collection DequeBasedQueue DictBasedKeyValue FilterOptions "
    "InMemoryLightningCollections KeyValue LightningCollections ListBasedCollection PaginatedResult Queue "
    "SortOptions",
    "store.collection.base": "AtomicLabels AtomicMode Collection DuplicatedPrimaryKeyError FilterMap KeyValue "
    "LightningCollections Queue TrackedCollection ensure_numeric merge_must_filters normalize_filter_options "
    "resolve_error_type resolve_sort_options tracked",
    "store.collection.memory": "DequeBasedQueue DictBasedKeyValue InMemoryLightningCollections ListBasedCollection "
    "ListBasedCollectionItemType MutationMode",
    "store.collection.mongo": "MongoBasedCollection MongoBasedKeyValue MongoBasedQueue MongoClientPool "
    "MongoLightningCollections resolve_mongo_error_type",
    "store.collection_based": "COLLECTION_STORE_ALL_METHODS COLLECTION_STORE_PUBLIC_METHODS "
    "CollectionBasedLightningStore get_current_store_methods healthcheck_before tracked",
    "store.memory": "InMemoryLightningStore estimate_model_size",
    "store.mongo": "MongoLightningStore",
    "store.threading": "LightningStoreThreaded",
    "store.utils": "LATENCY_BUCKETS UpdateAttemptStatus UpdateRolloutStatus rollout_status_from_attempt "
    "scan_unhealthy_rollouts",
    "tracer": "AgentOpsTracer DummyTracer OtelTracer Tracer clear_active_tracer get_active_tracer set_active_tracer",
    "tracer.agentops": "AgentOpsTracer",
    "tracer.base": "Tracer clear_active_tracer get_active_tracer set_active_tracer with_active_tracer_context",
    "tracer.dummy": "DummySpanRecordingContext DummyTracer",
    "tracer.otel": "LightningSpanProcessor OtelSpanRecordingContext OtelTracer STORE_WRITE_TIMEOUT_SECONDS "
    "to_otel_status_code",
    "tracer.weave": "WeaveSpanRecordingContext WeaveTracer WeaveTracerManagedTraceServer get_timestamp_or_throw "
    "op_name_to_func_name random_project_name",
    "trainer": "Trainer build_component",
    "trainer.init_utils": "OptionalDefaults build_component instantiate_component instantiate_from_spec load_class",
    "trainer.legacy": "TrainerLegacy",
    "trainer.registry": "ExecutionStrategyRegistry",
    "trainer.trainer": "ComponentSpec Trainer",
    "types": "Attempt AttemptStatus AttemptedRollout AttributeValue Attributes Dataset EnqueueRolloutRequest Event "
    "FilterField FilterOptions GenericResponse Hook LLM Link NamedResources OtelResource PaginatedResult "
    "ParallelWorkerBase PromptTemplate ProxyLLM Resource ResourceUnion ResourcesUpdate Rollout RolloutConfig "
    "RolloutLegacy RolloutMode RolloutRawResult RolloutRawResultLegacy RolloutStatus SortOptions Span "
    "SpanAttributeNames SpanContext SpanCoreFields SpanLike SpanNames SpanRecordingContext StatusCode Task "
    "TaskIfAny TaskInput TraceState TraceStatus Triplet Worker WorkerStatus",
    "types.core": "Attempt AttemptStatus AttemptedRollout Dataset EnqueueRolloutRequest FilterField FilterOptions "
    "GenericResponse Hook PaginatedResult ParallelWorkerBase Rollout RolloutConfig RolloutLegacy RolloutMode "
    "RolloutRawResult RolloutRawResultLegacy RolloutStatus SortOptions Task TaskIfAny TaskInput Triplet Worker "
    "WorkerStatus",
    "types.resources": "LLM NamedResources PromptTemplate ProxyLLM Resource ResourceUnion ResourcesUpdate",
    "types.tracer": "AttributeValue Attributes Event Link OtelResource Span SpanAttributeNames SpanContext "
    "SpanCoreFields SpanLike SpanNames SpanRecordingContext StatusCode TraceState TraceStatus convert_timestamp "
    "extract_extra_fields",
    "utils.id": "generate_id",
    "utils.metrics": "ConsoleMetricsBackend LabelDict LabelKey MetricsBackend MultiMetricsBackend "
    "PrometheusMetricsBackend get_prometheus_registry setup_multiprocess_prometheus shutdown_metrics",
    "utils.otel": "check_attributes_sanity extract_links_from_attributes extract_tags_from_attributes "
    "filter_and_unflatten_attributes filter_attributes flatten_attributes format_exception_attributes "
    "full_qualified_name get_span_processors get_tracer get_tracer_provider make_link_attributes "
    "make_tag_attributes query_linked_spans sanitize_attribute_value sanitize_attributes "
    "sanitize_list_attribute_sanity unflatten_attributes",
    "utils.otlp": "LightningStoreOTLPExporter PROTOBUF_CT handle_otlp_export spans_from_proto",
    "utils.server_launcher": "ChildEvent GunicornApp LaunchMode PythonServerLauncher PythonServerLauncherArgs "
    "noop_context run_gunicorn run_uvicorn_asyncio run_uvicorn_subprocess run_uvicorn_thread "
    "shutdown_uvicorn_server",
    "utils.system_snapshot": "system_snapshot",
    "verl": "AgentDataset AgentLightningTrainer AgentModeDaemon LoadedDataset TaskRunner "
    "get_left_padded_ids_and_attention_mask get_right_padded_ids_and_attention_mask main run_ppo",
    "verl.async_server": "PatchedvLLMServer",
    "verl.daemon": "AgentModeDaemon get_left_padded_ids_and_attention_mask get_right_padded_ids_and_attention_mask "
    "ids_startswith log_mismatch_detail",
    "verl.dataset": "AgentDataset LoadedDataset",
    "verl.entrypoint": "TaskRunner main run_ppo",
    "verl.trainer": "AgentLightningTrainer compute_data_metrics",
}
"""Path below ``agentlightning`` -> the names in it (``__all__``, and what it defines besides)."""

_LIFE_CYCLE = "the life cycle decides, for every store: `lightstream.stream_processors.core.lifecycle`"
_FOLDS = "stores are folds over the log: `InMemoryLightningStore`, `KafkaLightningStore`"
_WIRE = "requests are the server's own; use `LightningStoreClient`"
_CALLABLE = "a type of functions; `Callable`"
_ONE_INSTRUMENTATION = "`lightstream.producers.instrument([…])`, by the field's own instrumentors"
_APO = "`lightstream.trainers.algorithms.apo`: instructions to the models are texts of its module `editor`"
_ENTRY = "`lightstream.agl.Trainer(algorithm=VERL(config)).fit(…)`"
_PROXY = "the proxy does it by itself: `lightstream.producers.LLMProxy`"

ABSENT_MODULES: dict[str, str] = {
    "execution.inter_process": "`ClientServerExecutionStrategy` (there, it raises)",
    "instrumentation.agentops": _ONE_INSTRUMENTATION,
    "instrumentation.agentops_langchain": _ONE_INSTRUMENTATION,
    "instrumentation.vllm": "nothing: vLLM returns token ids, and the LLM proxy asks for them",
    "instrumentation.weave": "`lightstream.agl.tracer.weave.WeaveTracer`",
    "store.collection": f"{_FOLDS}; `FilterOptions`, `SortOptions`, `PaginatedResult` are in `lightstream.agl.types`",
    "store.collection.base": _FOLDS,
    "store.collection.memory": _FOLDS,
    "store.collection.mongo": _FOLDS,
    "store.collection_based": _FOLDS,
    "store.mongo": "`KafkaLightningStore`",
    "store.utils": _LIFE_CYCLE,
    "trainer.legacy": "`Trainer.fit_v0`",
    "utils.otlp": "the OTLP gateway (`lightstream gateway`), and `LightstreamSpanExporter`",
    "utils.server_launcher": "servers are threads of their process, or services of `lightstream up`",
    "utils.system_snapshot": "heartbeats report only attempts",
    "verl.async_server": "the policy server (`lightstream policy`)",
    "verl.entrypoint": _ENTRY,
}
"""Path -> what replaces the module."""

ABSENT_NAMES: dict[str, str] = {
    "adapter.messages.convert_to_openai_messages": "`TraceToMessages().adapt(spans)`",
    "adapter.messages.group_genai_dict": "`lightstream.agl.utils.otel.filter_and_unflatten_attributes`",
    "adapter.triplet.Transition": "`Triplet`",
    "algorithm.apo.apo.*_PROMPT_FILES": _APO,
    "algorithm.decorator.AlgorithmFunc*": _CALLABLE,
    "algorithm.decorator.AsyncFlag": _CALLABLE,
    "config.CliConfigurable": "`Any`",
    "instrumentation.*_INSTALLED": "`lightstream.producers.instrument()` takes what is installed",
    "instrumentation.litellm.*_set_attributes": _ONE_INSTRUMENTATION,
    "litagent.decorator.*Func*": _CALLABLE,
    "llm_proxy.Add*": _PROXY,
    "llm_proxy.*Middleware": _PROXY,
    "llm_proxy.Lightning*": _PROXY,
    "llm_proxy.*_llm_proxy": "there may be several; keep the object",
    "llm_proxy.initialize_llm_callbacks": _PROXY,
    "server.ServerDataStore": "`AgentLightningServer.store`",
    "store.CollectionBasedLightningStore": _FOLDS,
    "store.client_server.*": _WIRE,
    "store.memory.estimate_model_size": "nothing is evicted",
    "tracer.base.with_active_tracer_context": "`Tracer.trace_context` does it",
    "tracer.otel.*": "`OtelTracer` has its own",
    "tracer.weave.*": "`WeaveTracer` has its own",
    "types.tracer.convert_timestamp": "times are seconds since 1970",
    "types.tracer.extract_extra_fields": "`Span.from_opentelemetry`",
    "utils.otel.get_span_processors": "OpenTelemetry's own",
    "verl.TaskRunner": _ENTRY,
    "verl.main": _ENTRY,
    "verl.run_ppo": _ENTRY,
    "verl.daemon.*": "nothing is tokenised again; `lightstream explain` shows which calls continue each other",
    "verl.trainer.compute_data_metrics": "verl's own (`verl.trainer.ppo.metric_utils`)",
}
"""Pattern of ``path.name`` (``fnmatch``) -> what replaces it. It does not concern names that are there."""


def add_parts(name: str) -> None:
    """Register the submodules that Agent Lightning 0.3 has below a module and this package has not, with their names.

    ``lightstream.agl.emitter.reward``, for example, holds those names of ``lightstream.agl.emitter`` that
    ``agentlightning.emitter.reward`` has. Called at the end of the module.
    """
    module = sys.modules[name]
    for path, names in MODULES.items():
        full_name = f"{_AGL}{path}"
        if full_name.startswith(f"{name}.") and path not in ABSENT_MODULES and full_name not in sys.modules:
            part = ModuleType(full_name, module.__doc__)
            vars(part).update({known: getattr(module, known) for known in names.split() if hasattr(module, known)})
            sys.modules[full_name] = part
            vars(module).setdefault(path.rpartition(".")[2], part)
