"""The LLM proxy."""

from __future__ import annotations

from lightstream.producers import LLMProxy
from lightstream.producers.llm_proxy.model_list import ModelConfig

__all__ = ["LLMProxy", "ModelConfig"]
