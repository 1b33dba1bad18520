"""``agentlightning.types.resources``: resources."""

from __future__ import annotations

from lightstream.schemas.types import (
    LLM,
    NamedResources,
    PromptTemplate,
    ProxyLLM,
    Resource,
    ResourcesUpdate,
    ResourceUnion,
)

__all__ = ["LLM", "NamedResources", "PromptTemplate", "ProxyLLM", "Resource", "ResourceUnion", "ResourcesUpdate"]
