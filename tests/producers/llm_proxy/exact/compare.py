"""What a model server sampled, compared with what the proxy recorded and with what is assembled from that."""

from __future__ import annotations

from typing import TypeAlias

from lightstream.schemas.records import AttemptClosed, AttemptOpened, SpanRecord, TripletRecord
from lightstream.stream_processors.core.assembly import Assembler
from tests.stream_processors.assembly.build import closed, opened

Tokens: TypeAlias = tuple[bytes | None, bytes | None, bytes | None]
"""Prompt token ids, response token ids, log-probabilities; packed."""


def assert_no_differences(sampled: dict[tuple[str, int], Tokens], spans: list[SpanRecord]) -> None:
    """Neither between what the server sampled and what is recorded, nor between that and what is trained on."""
    recorded = _recorded(spans)
    assert [key for key in sampled.keys() | recorded.keys() if sampled.get(key) != recorded.get(key)] == []
    triplets = _assembled(spans)
    assert set(triplets) == {span.span_id for span in spans}
    for span in spans:
        call, triplet = span.llm_call, triplets[span.span_id]
        assert call is not None
        trained_on = triplet.prompt_token_ids, triplet.response_token_ids, triplet.response_logprobs
        assert trained_on == (call.prompt_token_ids, call.response_token_ids, call.response_logprobs)


def _recorded(spans: list[SpanRecord]) -> dict[tuple[str, int], Tokens]:
    """By the model server's id and the choice, each once."""
    found: dict[tuple[str, int], Tokens] = {}
    for span in spans:
        call = span.llm_call
        assert call is not None
        assert call.error_message is None
        server_id: str = span.attributes.get("lightstream.proxy.upstream_response_id") or call.response_id or ""
        assert (server_id, call.choice_index) not in found, "recorded twice"
        found[server_id, call.choice_index] = call.prompt_token_ids, call.response_token_ids, call.response_logprobs
    return found


def _assembled(spans: list[SpanRecord]) -> dict[str, TripletRecord]:
    """Span id -> triplet, of every rollout; nothing is dropped."""
    by_rollout: dict[str, list[SpanRecord]] = {}
    for span in spans:
        by_rollout.setdefault(span.rollout_id or "", []).append(span)
    triplets: dict[str, TripletRecord] = {}
    for rollout_id, its_spans in by_rollout.items():
        records: list[SpanRecord | AttemptOpened | AttemptClosed] = [opened(rollout_id), *its_spans, closed(rollout_id)]
        (trajectory,) = Assembler().on_records((record, offset) for offset, record in enumerate(records))
        assert trajectory.drops == []
        assert trajectory.call_count == len(trajectory.triplets) == len(its_spans)
        triplets |= {triplet.span_id: triplet for triplet in trajectory.triplets}
    return triplets
