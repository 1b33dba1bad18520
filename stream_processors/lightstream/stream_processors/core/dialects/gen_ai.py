"""Spans that describe an LLM call without its tokens: OpenTelemetry GenAI, OpenLLMetry, AgentOps, Vercel, Langfuse."""

from __future__ import annotations

from lightstream.schemas.records import SpanRecord

from ._attributes import complete, response_id
from ._model import ReadCall

__all__ = ["read_gen_ai", "read_named"]

_OPERATIONS = frozenset({"chat", "text_completion", "generate_content", "completion"})
_NAMES = frozenset({"openai.chat", "openai.chat.completion", "openai.completion", "litellm_request"})


def read_gen_ai(span: SpanRecord) -> list[ReadCall]:
    """One call without tokens where the span is of LLM kind. Joined by response id, it says who called."""
    attributes = span.attributes
    operation = attributes.get("gen_ai.operation.name", attributes.get("llm.request.type"))
    if isinstance(operation, str):
        is_call = operation in _OPERATIONS
    else:
        is_call = (
            span.name in _NAMES
            or response_id(attributes) is not None
            or attributes.get("agentops.span.kind") == "llm"
            or attributes.get("langfuse.observation.type") == "generation"
        )
    return [complete(ReadCall("gen_ai"), span)] if is_call else []


def read_named(span: SpanRecord) -> list[ReadCall]:
    """One call of a span that is known to be of LLM kind by its name alone."""
    return [complete(ReadCall("span_name"), span)]
