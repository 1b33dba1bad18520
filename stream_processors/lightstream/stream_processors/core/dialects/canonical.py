"""Lightstream's own attributes: ``lightstream.prompt_token_ids``, ``response_token_ids``, ``response_logprobs``."""

from __future__ import annotations

from lightstream.schemas.records import SpanRecord

from ._attributes import complete
from ._model import ReadCall
from ._values import set_logprobs, set_token_ids

__all__ = ["read_canonical"]

PROMPT = "lightstream.prompt_token_ids"
RESPONSE = "lightstream.response_token_ids"
LOGPROBS = "lightstream.response_logprobs"
CHOICE = "lightstream.llm_call.choice_index"


def read_canonical(span: SpanRecord) -> list[ReadCall]:
    """One call where the span has prompt or response ids under our names."""
    attributes = span.attributes
    if PROMPT not in attributes and RESPONSE not in attributes:
        return []
    choice = attributes.get(CHOICE)
    call = ReadCall("canonical", choice_index=choice if type(choice) is int and choice >= 0 else 0)
    set_token_ids(call, "prompt_token_ids", attributes.get(PROMPT), PROMPT)
    set_token_ids(call, "response_token_ids", attributes.get(RESPONSE), RESPONSE)
    set_logprobs(call, attributes.get(LOGPROBS), LOGPROBS)
    return complete([call], span)
