"""Between what an agent reports of a task and the spans that are kept of it. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any

from pydantic import ValidationError

from lightstream.schemas.attribute_names import (
    AGL_LINK,
    AGL_REWARD,
    PROMPT_TOKEN_IDS,
    RESPONSE_LOGPROBS,
    RESPONSE_TOKEN_IDS,
)
from lightstream.schemas.types import Attributes, RolloutLegacy, Span, Triplet
from lightstream.stream_processors.core.rewards import read_rewards

from ...kafka.span_record import span_record
from ._otel_json import span_of_json

__all__ = ["final_reward_in", "report_in", "spans_of"]

REPORT = "agentlightning.rollout"
"""Name of the span that carries the whole report, as JSON, in the attribute of the same name."""

TRIPLET = "agentlightning.triplet"
RESPONSE_ID = "gen_ai.response.id"


def spans_of(report: RolloutLegacy, attempt_id: str) -> tuple[list[Span], int]:
    """Its calls, each with its reward; the reward of the whole; at last the report itself. Numbered from 1.

    Ids follow from the attempt and the place, so that a report sent twice is kept once. With triplets the trace tells
    of the same calls again: it stays in the report alone. Also returns how many entries of the trace are not spans.
    """
    spans: list[Span] = []
    unreadable = 0

    def add(name: str, attributes: Attributes) -> str:
        number = len(spans) + 1
        digest = hashlib.sha256(f"{attempt_id}\0{number}".encode("utf-8", "backslashreplace")).hexdigest()
        own = digest[32:48]
        spans.append(
            Span.from_attributes(
                attributes=attributes,
                rollout_id=report.rollout_id,
                attempt_id=attempt_id,
                sequence_id=number,
                name=name,
                trace_id=hashlib.sha256(attempt_id.encode("utf-8", "backslashreplace")).hexdigest()[:32],
                span_id=own,
            )
        )
        return own

    for triplet in report.triplets or ():
        span_id = add(TRIPLET, _attributes_of(triplet))
        if triplet.reward is not None:
            add(
                AGL_REWARD,
                _reward(triplet.reward) | {f"{AGL_LINK}.0.key_match": "span_id", f"{AGL_LINK}.0.value_match": span_id},
            )
    for said in () if report.triplets else report.trace or ():
        span = span_of_json(said, report.rollout_id, attempt_id, len(spans) + 1)
        if span is None:
            unreadable += 1
        else:
            spans.append(span)
    if report.final_reward is not None:
        add(AGL_REWARD, _reward(report.final_reward))
    add(REPORT, {REPORT: report.model_dump_json()})
    return spans, unreadable


def report_in(spans: Iterable[Span]) -> RolloutLegacy | None:
    """The report that :func:`spans_of` put among the spans, or ``None``."""
    for span in spans:
        if span.name == REPORT and isinstance(span.attributes.get(REPORT), str):
            try:
                return RolloutLegacy.model_validate_json(span.attributes[REPORT])
            except ValidationError:
                return None
    return None


def final_reward_in(spans: Iterable[Span]) -> float | None:
    """The last reward among the spans that is for no call alone, or ``None``."""
    rewards = [reading for span in spans for reading in read_rewards(span_record(span), 0) if not reading.links]
    numbers = [value for reading in rewards for dimension, _, value in reading.dimensions if dimension == 0]
    return numbers[-1] if numbers else None


def _attributes_of(triplet: Triplet) -> Attributes:
    prompt, response = triplet.prompt, triplet.response
    attributes: Attributes = {"gen_ai.operation.name": "chat"}  # without token ids it is still a call, and told so
    if isinstance(prompt, dict) and prompt.get("token_ids") is not None:
        attributes[PROMPT_TOKEN_IDS] = prompt["token_ids"]
    if isinstance(response, dict) and response.get("token_ids") is not None:
        attributes[RESPONSE_TOKEN_IDS] = response["token_ids"]
        if response.get("logprobs"):
            attributes[RESPONSE_LOGPROBS] = _json(response["logprobs"])
    if isinstance(triplet.metadata.get("response_id"), str):
        attributes[RESPONSE_ID] = triplet.metadata["response_id"]
    return attributes


def _reward(value: float) -> Attributes:
    return {f"{AGL_REWARD}.0.name": "primary", f"{AGL_REWARD}.0.value": value}


def _json(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
