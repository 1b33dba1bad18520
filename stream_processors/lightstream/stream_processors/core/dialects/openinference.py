"""OpenInference: the whole answer as JSON in ``output.value`` of spans whose kind is LLM."""

from __future__ import annotations

from typing import Any

from lightstream.schemas.records import SpanRecord

from ._attributes import complete
from ._model import ReadCall
from ._values import is_list, is_map, parse_json, set_logprobs, text_or_none
from .engine_response import looks_like_response, read_response

__all__ = ["read_openinference"]

KIND = "openinference.span.kind"

COUNTING = "count_tokens"
"""How the names of spans end that are of LLM kind, though no model is asked: Anthropic's count of a prompt's tokens."""


def read_openinference(span: SpanRecord) -> list[ReadCall]:
    """The calls of an LLM-kind span; one without content where the value is redacted or no JSON."""
    kind = span.attributes.get(KIND)
    if not isinstance(kind, str) or kind.upper() != "LLM" or span.name.endswith(COUNTING):
        return []
    body = parse_json(span.attributes.get("output.value"))
    if looks_like_response(body):
        calls = read_response(body, "output.value", "openinference")
    elif is_map(body) and is_list(body.get("generations")):
        calls = [_langchain(body["generations"], body)]
    else:
        calls = []
    return complete(calls or [ReadCall("openinference")], span)


def _langchain(generations: Any, body: Any) -> ReadCall:
    """LangChain's result: log-probabilities and perhaps a response id, never token ids."""
    call = ReadCall("openinference")
    first = generations[0] if generations else None
    first = first[0] if is_list(first) and first else first
    if not is_map(first):
        return call
    info = first.get("generation_info")
    if is_map(info):
        set_logprobs(call, info.get("logprobs"), "output.value:generations[0][0].generation_info.logprobs")
        call.finish_reason = text_or_none(info.get("finish_reason"))
    message = first.get("message")
    keywords = message.get("kwargs") if is_map(message) else None
    metadata = keywords.get("response_metadata") if is_map(keywords) else None
    output = body.get("llm_output")
    for holder in (metadata, output):
        if is_map(holder) and call.response_id is None:
            call.response_id = text_or_none(holder.get("id"))
    return call
