"""Emitters record rewards, annotations and operations of an agent as spans with Agent Lightning's names."""

from lightstream.schemas.types import SpanCoreFields

from ..attributes import make_link_attributes, make_tag_attributes
from .messages import emit_annotation, emit_exception, emit_message, emit_object
from .operations import OperationContext, operation
from .reading import (
    find_final_reward,
    find_reward_spans,
    get_message_value,
    get_object_value,
    get_reward_value,
    get_rewards_from_span,
    is_reward_span,
)
from .rewards import emit_reward, reward
from .tracer_in_use import NoActiveTracerError

__all__ = [
    "NoActiveTracerError",
    "OperationContext",
    "SpanCoreFields",
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
    "make_link_attributes",
    "make_tag_attributes",
    "operation",
    "reward",
]
