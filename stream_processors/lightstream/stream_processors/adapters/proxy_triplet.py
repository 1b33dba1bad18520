"""Triplets from the spans of an LLM proxy: ours, or LiteLLM's."""

from __future__ import annotations

from collections.abc import Sequence

from lightstream.schemas.records import SpanRecord
from lightstream.schemas.types import Span, Triplet

from ..core.assembly import read_attempt
from ..core.dialects import ReadCall, read_calls
from ._payload import token_ids
from ._records import in_log_order, record_of, spans_of
from .triplet import TraceToTripletBase

__all__ = ["LlmProxyTraceToTriplet"]

PROXY_SPANS = frozenset({"raw_gen_ai_request", "litellm_request", "chat.completion"})
"""Names of the spans in which LiteLLM's callback and our own proxy record a call."""

REWARD_MATCH = "first_occurrence"


class LlmProxyTraceToTriplet(TraceToTripletBase):
    """Triplets of the calls that a proxy recorded with their token ids.

    Proxies and agents may run on different machines, so times decide nothing: spans are ordered by ``sequence_id``. A
    reward is for the call that it links to, else for the last call before it that has none yet.
    """

    def adapt(self, source: Sequence[Span], /) -> list[Triplet]:
        """The triplets of ``source`` in log order. Each call counts once, also where several spans record it."""
        spans = spans_of(source)
        records = [record_of(spans[position]) for position in in_log_order(spans)]
        reading = read_attempt(zip(records, range(len(records)), strict=True), _read)
        calls = [call for call in reading.calls if call.read.has_tokens and call.read.response_token_ids]
        calls = [call for call in calls if call.read.prompt_token_ids]
        rewards = reading.match(calls, REWARD_MATCH).by_call
        return [
            Triplet(
                prompt={"token_ids": token_ids(call.read.prompt_token_ids)},
                response={"token_ids": token_ids(call.read.response_token_ids)},
                reward=rewards.get(index),
                metadata={"response_id": call.read.response_id},
            )
            for index, call in enumerate(calls)
        ]


def _read(record: SpanRecord) -> list[ReadCall]:
    return read_calls(record) if record.name in PROXY_SPANS else []
