"""Spans that describe an LLM call without its tokens: OpenTelemetry GenAI, OpenLLMetry, AgentOps, LiteLLM, Vercel, …"""

from __future__ import annotations

from lightstream.schemas.records import SpanRecord

from ._attributes import complete
from ._kind import is_of_llm_kind
from ._model import ReadCall

__all__ = ["read_gen_ai", "read_named"]


def read_gen_ai(span: SpanRecord) -> list[ReadCall]:
    """One call without tokens where the span is of LLM kind. Joined by response id, it says who called."""
    return complete([ReadCall("gen_ai")], span) if is_of_llm_kind(span) else []


def read_named(span: SpanRecord) -> list[ReadCall]:
    """One call of a span that is known to be of LLM kind by its name alone."""
    return complete([ReadCall("span_name")], span)
