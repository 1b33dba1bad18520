"""Attribute and span names. The ``agentlightning.*`` names are the field's own: existing agents write and read them."""

from __future__ import annotations

from enum import Enum

from pydantic import BaseModel

from lightstream.schemas.attribute_names import (
    AGL_ANNOTATION,
    AGL_ATTEMPT_ID,
    AGL_EXCEPTION,
    AGL_LINK,
    AGL_MESSAGE,
    AGL_MESSAGE_BODY,
    AGL_OBJECT,
    AGL_OBJECT_JSON,
    AGL_OBJECT_LITERAL,
    AGL_OBJECT_TYPE,
    AGL_OPERATION,
    AGL_OPERATION_INPUT,
    AGL_OPERATION_NAME,
    AGL_OPERATION_OUTPUT,
    AGL_REWARD,
    AGL_ROLLOUT_ID,
    AGL_SPAN_SEQUENCE_ID,
    AGL_TAG,
    AGL_TRACER_NAME,
    AGL_VIRTUAL,
    ATTEMPT_ID,
    LOG_BODY,
    LOG_SEVERITY_NUMBER,
    LOG_SEVERITY_TEXT,
    POLICY_VERSION,
    PROMPT_TOKEN_IDS,
    RESOURCES_ID,
    RESPONSE_LOGPROBS,
    RESPONSE_TOKEN_IDS,
    ROLLOUT_ID,
    TRUNCATED,
)

__all__ = [
    "AGL_ANNOTATION",
    "AGL_ATTEMPT_ID",
    "AGL_EXCEPTION",
    "AGL_LINK",
    "AGL_MESSAGE",
    "AGL_MESSAGE_BODY",
    "AGL_OBJECT",
    "AGL_OBJECT_JSON",
    "AGL_OBJECT_LITERAL",
    "AGL_OBJECT_TYPE",
    "AGL_OPERATION",
    "AGL_OPERATION_INPUT",
    "AGL_OPERATION_NAME",
    "AGL_OPERATION_OUTPUT",
    "AGL_REWARD",
    "AGL_ROLLOUT_ID",
    "AGL_SPAN_SEQUENCE_ID",
    "AGL_TAG",
    "AGL_TRACER_NAME",
    "AGL_VIRTUAL",
    "ATTEMPT_ID",
    "LOG_BODY",
    "LOG_SEVERITY_NUMBER",
    "LOG_SEVERITY_TEXT",
    "POLICY_VERSION",
    "PROMPT_TOKEN_IDS",
    "RESOURCES_ID",
    "RESPONSE_LOGPROBS",
    "RESPONSE_TOKEN_IDS",
    "ROLLOUT_ID",
    "TRUNCATED",
    "LightningResourceAttributes",
    "LightningSpanAttributes",
    "LinkAttributes",
    "LinkPydanticModel",
    "RewardAttributes",
    "RewardPydanticModel",
]


class LightningResourceAttributes(Enum):
    """Attributes of a resource: the rollout of its spans, and the tracer that made them."""

    ROLLOUT_ID = AGL_ROLLOUT_ID
    ATTEMPT_ID = AGL_ATTEMPT_ID
    SPAN_SEQUENCE_ID = AGL_SPAN_SEQUENCE_ID
    TRACER_NAME = AGL_TRACER_NAME


class LightningSpanAttributes(Enum):
    """Attributes of a span. ``REWARD``, ``LINK``, ``TAG`` and those of an operation's input and output are prefixes."""

    REWARD = AGL_REWARD
    LINK = AGL_LINK
    TAG = AGL_TAG
    MESSAGE_BODY = AGL_MESSAGE_BODY
    OBJECT_TYPE = AGL_OBJECT_TYPE
    OBJECT_LITERAL = AGL_OBJECT_LITERAL
    OBJECT_JSON = AGL_OBJECT_JSON
    OPERATION_NAME = AGL_OPERATION_NAME
    OPERATION_INPUT = AGL_OPERATION_INPUT
    OPERATION_OUTPUT = AGL_OPERATION_OUTPUT


class RewardAttributes(Enum):
    """Of one dimension of a reward: ``agentlightning.reward.<dimension>.name``; dimension 0 is the reward itself."""

    REWARD_NAME = "name"
    REWARD_VALUE = "value"


class RewardPydanticModel(BaseModel):
    """One dimension of a reward."""

    name: str
    value: float


class LinkAttributes(Enum):
    """Attributes of a link: it links the spans whose attribute of this name, or whose id, has this value."""

    KEY_MATCH = "key_match"
    VALUE_MATCH = "value_match"


class LinkPydanticModel(BaseModel):
    """A link: ``key_match`` is an attribute's name, ``trace_id`` or ``span_id``."""

    key_match: str
    value_match: str
