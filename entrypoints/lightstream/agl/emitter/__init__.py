"""``agentlightning.emitter``: emitters, and readers of what they wrote."""

from __future__ import annotations

from lightstream.producers import (
    emit_annotation,
    emit_exception,
    emit_message,
    emit_object,
    get_message_value,
    get_object_value,
    operation,
)

from .reward import (
    emit_reward,
    find_final_reward,
    find_reward_spans,
    get_reward_value,
    get_rewards_from_span,
    is_reward_span,
    reward,
)

__all__ = [
    "emit_annotation",
    "emit_exception",
    "emit_message",
    "emit_object",
    "emit_reward",
    "find_final_reward",
    "find_reward_spans",
    "get_message_value",
    "get_object_value",
    "get_reward_value",
    "get_rewards_from_span",
    "is_reward_span",
    "operation",
    "reward",
]
