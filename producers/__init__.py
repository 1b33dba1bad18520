"""The agent's side of Lightstream: spans, rewards, agents, Runners. Imports nothing until it is used.

An agent's author imports from here, and from nothing deeper.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lightstream.runtime.lazy import lazy_names

if TYPE_CHECKING:
    from lightstream.schemas.types import LLM, AttemptedRollout, NamedResources, PromptTemplate, ProxyLLM, Rollout, Span

    from .agent import LitAgent, llm_rollout, prompt_rollout, rollout
    from .attributes import (
        extract_links_from_attributes,
        extract_tags_from_attributes,
        make_link_attributes,
        make_tag_attributes,
        query_linked_spans,
    )
    from .child_processes import attempt_environment
    from .commands import CommandAgent, CommandLimits
    from .context import AttemptRef, current_attempt
    from .emitter import (
        NoActiveTracerError,
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
        operation,
        reward,
    )
    from .exporter import KafkaSpanExporter
    from .instrumentation import instrument, uninstrument
    from .llm_proxy import LLMProxy
    from .policy import GovernedAgent, PolicyRunner
    from .runner import Hook, Runner
    from .tracer import (
        AgentOpsTracer,
        DummyTracer,
        OtelTracer,
        Tracer,
        WeaveTracer,
        clear_active_tracer,
        get_active_tracer,
        set_active_tracer,
    )
    from .worker_base import ParallelWorkerBase

__all__ = [
    "LLM",
    "AgentOpsTracer",
    "AttemptRef",
    "AttemptedRollout",
    "CommandAgent",
    "CommandLimits",
    "DummyTracer",
    "GovernedAgent",
    "Hook",
    "KafkaSpanExporter",
    "LLMProxy",
    "LitAgent",
    "NamedResources",
    "NoActiveTracerError",
    "OtelTracer",
    "ParallelWorkerBase",
    "PolicyRunner",
    "PromptTemplate",
    "ProxyLLM",
    "Rollout",
    "Runner",
    "Span",
    "Tracer",
    "WeaveTracer",
    "attempt_environment",
    "clear_active_tracer",
    "current_attempt",
    "emit_annotation",
    "emit_exception",
    "emit_message",
    "emit_object",
    "emit_reward",
    "extract_links_from_attributes",
    "extract_tags_from_attributes",
    "find_final_reward",
    "find_reward_spans",
    "get_active_tracer",
    "get_message_value",
    "get_object_value",
    "get_reward_value",
    "get_rewards_from_span",
    "instrument",
    "is_reward_span",
    "llm_rollout",
    "make_link_attributes",
    "make_tag_attributes",
    "operation",
    "prompt_rollout",
    "query_linked_spans",
    "reward",
    "rollout",
    "set_active_tracer",
    "uninstrument",
]

_MODULES = {
    "AgentOpsTracer": "tracer",
    "AttemptRef": "context",
    "AttemptedRollout": "lightstream.schemas.types",
    "CommandAgent": "commands",
    "CommandLimits": "commands",
    "DummyTracer": "tracer",
    "GovernedAgent": "policy",
    "Hook": "runner",
    "KafkaSpanExporter": "exporter",
    "LLM": "lightstream.schemas.types",
    "LLMProxy": "llm_proxy",
    "LitAgent": "agent",
    "NamedResources": "lightstream.schemas.types",
    "NoActiveTracerError": "emitter",
    "OtelTracer": "tracer",
    "ParallelWorkerBase": "worker_base",
    "PolicyRunner": "policy",
    "PromptTemplate": "lightstream.schemas.types",
    "ProxyLLM": "lightstream.schemas.types",
    "Rollout": "lightstream.schemas.types",
    "Runner": "runner",
    "Span": "lightstream.schemas.types",
    "Tracer": "tracer",
    "WeaveTracer": "tracer",
    "attempt_environment": "child_processes",
    "clear_active_tracer": "tracer",
    "current_attempt": "context",
    "emit_annotation": "emitter",
    "emit_exception": "emitter",
    "emit_message": "emitter",
    "emit_object": "emitter",
    "emit_reward": "emitter",
    "extract_links_from_attributes": "attributes",
    "extract_tags_from_attributes": "attributes",
    "find_final_reward": "emitter",
    "find_reward_spans": "emitter",
    "get_active_tracer": "tracer",
    "get_message_value": "emitter",
    "get_object_value": "emitter",
    "get_reward_value": "emitter",
    "get_rewards_from_span": "emitter",
    "instrument": "instrumentation",
    "is_reward_span": "emitter",
    "llm_rollout": "agent",
    "make_link_attributes": "attributes",
    "make_tag_attributes": "attributes",
    "operation": "emitter",
    "prompt_rollout": "agent",
    "query_linked_spans": "attributes",
    "reward": "emitter",
    "rollout": "agent",
    "set_active_tracer": "tracer",
    "uninstrument": "instrumentation",
}

__getattr__, __dir__ = lazy_names(__name__, _MODULES)
