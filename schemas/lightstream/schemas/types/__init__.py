"""What agents and algorithms handle, named and shaped as in Agent Lightning."""

from .resources import LLM, NamedResources, PromptTemplate, ProxyLLM, Resource, ResourceUnion, resource_adapter
from .rollout import Attempt, AttemptedRollout, Rollout, RolloutModeName

__all__ = [
    "LLM",
    "Attempt",
    "AttemptedRollout",
    "NamedResources",
    "PromptTemplate",
    "ProxyLLM",
    "Resource",
    "ResourceUnion",
    "Rollout",
    "RolloutModeName",
    "resource_adapter",
]
