"""Names of spans and attributes."""

from __future__ import annotations

from lightstream.producers.semconv import (
    AGL_ANNOTATION,
    AGL_EXCEPTION,
    AGL_MESSAGE,
    AGL_OBJECT,
    AGL_OPERATION,
    AGL_REWARD,
    AGL_VIRTUAL,
    LightningResourceAttributes,
    LightningSpanAttributes,
    LinkAttributes,
    LinkPydanticModel,
    RewardAttributes,
    RewardPydanticModel,
)

__all__ = [
    "AGL_ANNOTATION",
    "AGL_EXCEPTION",
    "AGL_MESSAGE",
    "AGL_OBJECT",
    "AGL_OPERATION",
    "AGL_REWARD",
    "AGL_VIRTUAL",
    "LightningResourceAttributes",
    "LightningSpanAttributes",
    "LinkAttributes",
    "LinkPydanticModel",
    "RewardAttributes",
    "RewardPydanticModel",
]
