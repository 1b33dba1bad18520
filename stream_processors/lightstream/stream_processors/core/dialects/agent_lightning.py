"""Agent Lightning up to 0.3: plain ``prompt_token_ids`` on patched AgentOps spans, and Weave's operations."""

from __future__ import annotations

from lightstream.schemas.attribute_names import AGL_OPERATION_OUTPUT
from lightstream.schemas.records import SpanRecord

from ._attributes import complete
from ._flat import unflattened
from ._model import ReadCall
from ._values import is_map, set_logprobs, set_token_ids
from .engine_response import read_response

__all__ = ["read_agent_lightning"]


def read_agent_lightning(span: SpanRecord) -> list[ReadCall]:
    """One call where the span has ids as attributes, else those of an operation's answer."""
    attributes = span.attributes
    if "prompt_token_ids" in attributes or "response_token_ids" in attributes:
        call = ReadCall("agent_lightning")
        set_token_ids(call, "prompt_token_ids", attributes.get("prompt_token_ids"), "prompt_token_ids")
        set_token_ids(call, "response_token_ids", attributes.get("response_token_ids"), "response_token_ids")
        set_logprobs(call, attributes.get("logprobs.content"), "logprobs.content")
        return complete([call], span)
    return _weave(span)


def _weave(span: SpanRecord) -> list[ReadCall]:
    """The answer, which Weave's tracer spells out: one call a choice. An operation may return anything else."""
    if _OF_ANSWERS.isdisjoint(span.attributes):
        return []
    body = unflattened(span.attributes, AGL_OPERATION_OUTPUT)
    calls = read_response(body, AGL_OPERATION_OUTPUT, "agent_lightning")
    if not any(call.names_a_call for call in calls):
        calls = []
    if not calls and is_map(body) and "prompt_token_ids" in body:
        calls = [ReadCall("agent_lightning")]
        set_token_ids(
            calls[0], "prompt_token_ids", body["prompt_token_ids"], f"{AGL_OPERATION_OUTPUT}:prompt_token_ids"
        )
    return complete(calls, span)


_OF_A_CHOICE = ("index", "finish_reason", "message.role", "message.content", "token_ids", "logprobs")
_OF_ANSWERS = frozenset(
    f"{AGL_OPERATION_OUTPUT}.{name}"
    for name in (
        "prompt_token_ids",
        "response_token_ids",
        "response_token_ids.0",
        "choices.0.provider_specific_fields.token_ids",
        *(f"choices.0.{name}" for name in _OF_A_CHOICE),
    )
)
"""Names of which every LLM's answer has some: other spans are told by them at once."""
