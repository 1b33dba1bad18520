"""Reads the values that emitters wrote from spans, the SDK's or a store's."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from pydantic import TypeAdapter

from lightstream.schemas.types import SpanLike

from .. import semconv
from ..attributes import filter_and_unflatten_attributes
from ..semconv import RewardPydanticModel

SpanT = TypeVar("SpanT", bound=SpanLike)

_REWARDS: TypeAdapter[list[RewardPydanticModel]] = TypeAdapter(list[RewardPydanticModel])
_AGENTOPS = ("agentops.task.output", "agentops.entity.output")


def get_rewards_from_span(span: SpanLike) -> list[RewardPydanticModel]:
    """The dimensions of a reward, the reward itself first; none where the span is not a reward.

    Raises:
        ValueError: the value below ``agentlightning.reward`` is not a list of dimensions.
    """
    attributes = span.attributes or {}
    if not any(name.startswith(semconv.AGL_REWARD) for name in attributes):
        return []
    return _REWARDS.validate_python(filter_and_unflatten_attributes(attributes, semconv.AGL_REWARD))


def get_reward_value(span: SpanLike) -> float | None:
    """The reward of a span, ``None`` where it has none. Also as AgentOps and Agent Lightning before 0.3 wrote it."""
    rewards = get_rewards_from_span(span)
    if rewards:
        return rewards[0].value
    attributes = span.attributes or {}
    for name in _AGENTOPS:
        output = _mapping(attributes.get(name))
        if output is not None and output.get("type") == "reward":
            return output.get("value")
    if span.name in (semconv.AGL_ANNOTATION, semconv.AGL_REWARD):
        value = attributes.get("reward")
        return value if isinstance(value, (int, float)) else None
    return None


def is_reward_span(span: SpanLike) -> bool:
    """Return whether the span has a reward."""
    return get_reward_value(span) is not None


def find_reward_spans(spans: Sequence[SpanT]) -> list[SpanT]:
    """The spans that have a reward, in their order."""
    return [span for span in spans if is_reward_span(span)]


def find_final_reward(spans: Sequence[SpanLike]) -> float | None:
    """The last reward in ``spans``; ``None`` for none."""
    for span in reversed(spans):
        reward = get_reward_value(span)
        if reward is not None:
            return reward
    return None


def get_message_value(span: SpanLike) -> str | None:
    """The text of a message's span; ``None`` for other spans.

    Raises:
        TypeError: it is not a string.
    """
    message = (span.attributes or {}).get(semconv.AGL_MESSAGE_BODY)
    if message is not None and not isinstance(message, str):
        raise TypeError(f"a message must be text, not {type(message).__name__}: {message!r:.200}")
    return message


def get_object_value(span: SpanLike) -> Any:
    """The value of an object's span; ``None`` for other spans. A value that was written as JSON has JSON's types.

    Raises:
        RuntimeError: it was not written by ``emit_object``.
        ValueError: a number cannot be read.
    """
    attributes = span.attributes or {}
    written = attributes.get(semconv.AGL_OBJECT_JSON)
    if written is not None:
        try:
            return json.loads(str(written))
        except ValueError as error:
            raise RuntimeError(f"{semconv.AGL_OBJECT_JSON} is not valid JSON: {error}") from error
    literal = attributes.get(semconv.AGL_OBJECT_LITERAL)
    if literal is None:
        return None
    text, kind = str(literal), attributes.get(semconv.AGL_OBJECT_TYPE, "str")
    match kind:
        case "str":
            return text
        case "int":
            return int(text)
        case "float":
            return float(text)
        case "bool":
            return text.lower() == "true"
        case "bytes":
            return base64.b64decode(text)
        case _:
            raise RuntimeError(f"{semconv.AGL_OBJECT_TYPE} is {kind!r}, which is not written as a literal")


def _mapping(value: Any) -> Mapping[str, Any] | None:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return None
    return value if isinstance(value, Mapping) else None
