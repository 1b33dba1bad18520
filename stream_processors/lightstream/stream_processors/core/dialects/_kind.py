"""Whether a span says of itself that it is an LLM call."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from lightstream.schemas.records import SpanRecord

from ._attributes import response_id

__all__ = ["is_of_llm_kind"]

_CALLS = frozenset({"chat", "text_completion", "generate_content", "completion"})
_NAMES = frozenset({"openai.chat", "openai.chat.completion", "openai.completion", "litellm_request"})

_WORDS_OF_AGENTS = "agent workflow execute tool retrieval memory handoff guardrail"
_WORDS_OF_OTHER_MODELS = "embedding embeddings rerank image video speech transcription ocr moderation"
_WORDS_OF_SERVICES = """search query ingest batch file fine vector assistants thread message container sandbox
    code skill get list delete cancel retrieve count"""
_OTHER_OPERATIONS = frozenset(f"{_WORDS_OF_AGENTS} {_WORDS_OF_OTHER_MODELS} {_WORDS_OF_SERVICES}".split())
"""Words by which an operation is known to be no LLM call: ``execute_tool``, LiteLLM's ``aembedding``, ``file_list``."""
_NO_LETTERS = re.compile("[^a-z]+")

_MODEL_REQUESTS = (".doGenerate", ".doStream")
"""How Vercel's operations end that ask a model to write; ``ai.generateText`` lies around them."""
_MLFLOW_TYPES = frozenset({"CHAT_MODEL", "LLM"})


def is_of_llm_kind(span: SpanRecord) -> bool:
    """Whether a span is one of an LLM call: by its operation, its name, the response id that it quotes, or its kind.

    Each library has its own names of operations, so an unknown one decides nothing.
    """
    attributes = span.attributes
    operation = attributes.get("gen_ai.operation.name") or attributes.get("llm.request.type")
    if isinstance(operation, str):
        if operation in _CALLS:
            return True
        if _is_another(operation):
            return False
    return span.name in _NAMES or response_id(attributes) is not None or _is_marked(attributes)


def _is_another(operation: str) -> bool:
    """LiteLLM puts an ``a`` before the names of what it awaits."""
    words = _NO_LETTERS.split(operation.lower())
    return any(word in _OTHER_OPERATIONS or word.removeprefix("a") in _OTHER_OPERATIONS for word in words)


def _is_marked(attributes: Mapping[str, Any]) -> bool:
    """Whether AgentOps, Langfuse, MLflow (whose values are JSON) or Vercel tell of a model's run."""
    operation, mlflow_type = attributes.get("ai.operationId"), attributes.get("mlflow.spanType")
    return (
        attributes.get("agentops.span.kind") == "llm"
        or attributes.get("langfuse.observation.type") == "generation"
        or (isinstance(mlflow_type, str) and mlflow_type.strip('"') in _MLFLOW_TYPES)
        or (isinstance(operation, str) and operation.endswith(_MODEL_REQUESTS))
    )
