"""Emitters, and the readers of their spans."""

from __future__ import annotations

from typing import TypedDict

from lightstream.producers import (
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
from lightstream.producers.emitter import OperationContext
from lightstream.producers.emitter.messages import encode_object

from ._names import add_parts

__all__ = [
    "OperationContext",
    "RewardDimension",
    "emit_annotation",
    "emit_exception",
    "emit_message",
    "emit_object",
    "emit_reward",
    "encode_object",
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


class RewardDimension(TypedDict):
    """One dimension of a reward."""

    name: str
    value: float


add_parts(__name__)
