"""Lightstream's own attributes: ``lightstream.prompt_token_ids``, ``response_token_ids``, ``response_logprobs``."""

from __future__ import annotations

from lightstream.schemas.attribute_names import CHOICE_INDEX, PROMPT_TOKEN_IDS, RESPONSE_LOGPROBS, RESPONSE_TOKEN_IDS
from lightstream.schemas.records import SpanRecord

from ._attributes import complete
from ._model import ReadCall
from ._values import set_logprobs, set_token_ids

__all__ = ["read_canonical"]


def read_canonical(span: SpanRecord) -> list[ReadCall]:
    """One call where the span has prompt or response ids under our names."""
    attributes = span.attributes
    if PROMPT_TOKEN_IDS not in attributes and RESPONSE_TOKEN_IDS not in attributes:
        return []
    choice = attributes.get(CHOICE_INDEX)
    call = ReadCall("canonical", choice_index=choice if type(choice) is int and choice >= 0 else 0)
    set_token_ids(call, "prompt_token_ids", attributes.get(PROMPT_TOKEN_IDS), PROMPT_TOKEN_IDS)
    set_token_ids(call, "response_token_ids", attributes.get(RESPONSE_TOKEN_IDS), RESPONSE_TOKEN_IDS)
    set_logprobs(call, attributes.get(RESPONSE_LOGPROBS), RESPONSE_LOGPROBS)
    return complete([call], span)
