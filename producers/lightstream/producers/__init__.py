"""The agents' side of Lightstream: spans, rewards, agents, Runners. Imports nothing until it is used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lightstream.schemas.lazy import lazy_names

if TYPE_CHECKING:
    from .agent import LitAgent, rollout
    from .context import AttemptRef, current_attempt
    from .emitter import (
        emit_annotation,
        emit_exception,
        emit_message,
        emit_object,
        emit_reward,
        make_link_attributes,
        make_tag_attributes,
    )
    from .exporter import KafkaSpanExporter
    from .llm_proxy import LLMProxy
    from .runner import Hook, Runner
    from .tracer import OtelTracer

__all__ = [
    "AttemptRef",
    "Hook",
    "KafkaSpanExporter",
    "LLMProxy",
    "LitAgent",
    "OtelTracer",
    "Runner",
    "current_attempt",
    "emit_annotation",
    "emit_exception",
    "emit_message",
    "emit_object",
    "emit_reward",
    "make_link_attributes",
    "make_tag_attributes",
    "rollout",
]

_MODULES = {
    "AttemptRef": "context",
    "Hook": "runner",
    "KafkaSpanExporter": "exporter",
    "LLMProxy": "llm_proxy",
    "LitAgent": "agent",
    "OtelTracer": "tracer",
    "Runner": "runner",
    "current_attempt": "context",
    "emit_annotation": "emitter",
    "emit_exception": "emitter",
    "emit_message": "emitter",
    "emit_object": "emitter",
    "emit_reward": "emitter",
    "make_link_attributes": "emitter",
    "make_tag_attributes": "emitter",
    "rollout": "agent",
}

__getattr__, __dir__ = lazy_names(__name__, _MODULES)
