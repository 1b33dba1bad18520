"""Triplets from the spans of tracers, and from the spans of an LLM proxy (ours, or LiteLLM's)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from lightstream.schemas.records import SpanRecord
from lightstream.schemas.types import Span, SpanLike, Triplet

from ..core.assembly import read_attempt
from ..core.dialects import ReadCall, read_calls
from ..core.rewards import read_rewards
from ._payload import token_ids
from ._records import in_log_order, record_of, spans_of
from .base import RewardMatchPolicy, TraceAdapter
from .tree import LLM_CALL_MATCH, TraceTree

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan


class TraceToTripletBase(TraceAdapter[list[Triplet]]):
    """An adapter that makes triplets."""


class TracerTraceToTriplet(TraceToTripletBase):
    """Triplets of the LLM calls in a trace, in any dialect that the assembler reads.

    Args:
        repair_hierarchy: move spans that are next to their agent under it first
            (:meth:`TraceTree.repair_hierarchy`).
        llm_call_match: regular expression for names of LLM spans.
        agent_match: regular expression for agents; the nearest one above a call decides. ``None`` takes all.
        exclude_llm_call_in_reward: leave out calls made while computing a reward (a judge's).
        reward_match: what a reward without a link is for.
    """

    def __init__(
        self,
        repair_hierarchy: bool = True,
        llm_call_match: str = LLM_CALL_MATCH,
        agent_match: str | None = None,
        exclude_llm_call_in_reward: bool = True,
        reward_match: RewardMatchPolicy = RewardMatchPolicy.FIRST_OCCURRENCE,
        _skip_empty_token_spans: bool = False,
    ) -> None:
        self.repair_hierarchy = repair_hierarchy
        self.llm_call_match = llm_call_match
        self.agent_match = agent_match
        self.exclude_llm_call_in_reward = exclude_llm_call_in_reward
        self.reward_match = reward_match
        self._skip_empty_token_spans = _skip_empty_token_spans

    def visualize(
        self,
        source: Sequence[Span] | Sequence[ReadableSpan],
        /,
        filename: str = "trace_tree",
        interested_span_match: str | None = None,
    ) -> TraceTree:
        """Draw the tree into ``<filename>.png``; returns it.

        Args:
            interested_span_match: regular expression; only spans whose names match are drawn, and those above them.

        Raises:
            ValueError: there are no spans.
            LightstreamError: Graphviz is not installed, or failed; the graph is then in ``<filename>.gv``.
        """
        tree = self._tree(source)
        tree.visualize(filename, interested_span_match=interested_span_match)
        return tree

    def adapt(self, source: Sequence[Span] | Sequence[ReadableSpan], /) -> list[Triplet]:
        """The triplets of ``source``, which is unchanged; a call without token ids has empty lists of them.

        Raises:
            ValueError: there are no spans.
        """
        return self._tree(source).to_trajectory(
            llm_call_match=self.llm_call_match,
            agent_match=self.agent_match,
            exclude_llm_call_in_reward=self.exclude_llm_call_in_reward,
            reward_match=self.reward_match,
            _skip_empty_token_spans=self._skip_empty_token_spans,
        )

    def _tree(self, source: Iterable[SpanLike]) -> TraceTree:
        tree = TraceTree.from_spans(spans_of(source))
        if self.repair_hierarchy:
            tree.repair_hierarchy()
        return tree


PROXY_SPANS = frozenset({"raw_gen_ai_request", "litellm_request", "chat.completion"})
"""Names of the spans in which LiteLLM's callback and our own proxy record a call."""

REWARD_MATCH = "first_occurrence"


class LlmProxyTraceToTriplet(TraceToTripletBase):
    """Triplets of the calls that a proxy recorded with their token ids.

    Proxies and agents may run on different machines, so times decide nothing: spans are ordered by ``sequence_id``. A
    reward is for the call that it links to, else for the last call before it that has none yet; a call with the same
    number is not before it.
    """

    def adapt(self, source: Sequence[Span], /) -> list[Triplet]:
        """The triplets of ``source`` in log order. Each call counts once, also where several spans record it."""
        spans = spans_of(source)
        records = _rewards_first([record_of(spans[position]) for position in in_log_order(spans)])
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


def _rewards_first(records: Iterable[SpanRecord]) -> list[SpanRecord]:
    """Records of one number in another order: a reward is not for a call with its own number. 0 is no number."""
    ordered: list[SpanRecord] = []
    for number, group in groupby(records, key=lambda record: record.sequence_id):
        same = list(group)
        ordered += sorted(same, key=lambda record: not read_rewards(record, 0)) if number else same
    return ordered


def _read(record: SpanRecord) -> list[ReadCall]:
    return read_calls(record) if record.name in PROXY_SPANS else []
