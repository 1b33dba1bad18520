"""Which dialects are read, and in which order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lightstream.schemas.records import SpanRecord

from ._model import ReadCall
from .agent_lightning import read_agent_lightning
from .canonical import read_canonical
from .captured_body import read_captured_body
from .gen_ai import read_gen_ai
from .litellm_legacy import read_litellm_legacy
from .openinference import read_openinference
from .recorded import read_recorded

__all__ = ["DIALECTS", "Dialect", "read_calls"]

Dialect = Callable[[SpanRecord], list[ReadCall]]
"""The LLM calls that a span describes: none when the span speaks another dialect. Never raises, changes nothing."""

DIALECTS: tuple[Dialect, ...] = (
    read_canonical,
    read_agent_lightning,
    read_openinference,
    read_litellm_legacy,
    read_captured_body,
    read_gen_ai,
)
"""Most telling first: the first dialect that finds token ids is believed, else the first that finds a call."""


def read_calls(span: SpanRecord, dialects: Sequence[Dialect] = DIALECTS) -> list[ReadCall]:
    """The LLM calls that ``span`` describes (several where it holds several choices), in their order.

    The record's own ``llm_call`` stands above every dialect.
    """
    if span.llm_call is not None:
        return [read_recorded(span, span.llm_call)]
    if not span.attributes:
        return []
    found: list[ReadCall] = []
    for dialect in dialects:
        calls = dialect(span)
        if any(call.response_token_ids is not None or call.problem is not None for call in calls):
            return calls
        found = found or calls
    return found
