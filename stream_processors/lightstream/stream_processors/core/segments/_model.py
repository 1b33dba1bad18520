"""Trajectory-level sequences."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["NO_VERSION", "Segment", "SegmentStart", "Turn"]

NO_VERSION = -1
"""``policy_versions`` of a token that was not sampled, or whose version is unknown or beyond int32."""


class SegmentStart(StrEnum):
    """Why a segment begins: why its first call does not continue an earlier segment."""

    FIRST = "first"
    SUB_AGENT = "sub_agent"
    """The first call of an agent while others were at work."""
    RETOKENISED = "retokenised"
    """An earlier response came back as other ids (tokenised again, or its text was edited)."""
    EDITED_HISTORY = "edited_history"
    """The prompt parts from the earlier ones before any response: rewritten, summarised, or a new conversation."""
    BRANCH = "branch"
    """It continues an earlier state of a segment that has moved on (a retry, a parallel sample, a search)."""
    TOO_LONG = "too_long"
    """The call alone is longer than the limit for merged sequences."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One call's place in a segment: its response is at ``[start, end)``.

    ``reward`` is the triplet's (``None``: missing).
    """

    call_index: int
    span_id: str
    start: int
    end: int
    policy_version: int | None
    reward: float | None


@dataclass(frozen=True, slots=True)
class Segment:
    """One sequence of T tokens: a first prompt, then responses with what came between them.

    All arrays are packed little-endian and aligned, one entry per token:

    Attributes:
        token_ids: int32 (T,).
        loss_mask: uint8 (T,): 1 exactly where the policy sampled the token.
        logprobs: float32 (T,): as sampled; 0.0 where not sampled, NaN where the server did not say.
        policy_versions: int32 (T,): the version that sampled the token, else :data:`NO_VERSION`.
        rewards: float32 (T,): each turn's reward on its last token, NaN there when missing; 0.0 elsewhere.
        turns: the calls, in order; their ranges are what ``loss_mask`` marks.
        start_reason: why it begins here; ``diverged_at`` is the first token that differs from the agent's previous
            segment (-1 where there was none to compare).
    """

    index: int
    agent_name: str | None
    token_ids: bytes
    loss_mask: bytes
    logprobs: bytes
    policy_versions: bytes
    rewards: bytes
    turns: tuple[Turn, ...]
    start_reason: SegmentStart
    diverged_at: int = -1

    @property
    def length(self) -> int:
        """T, in tokens."""
        return len(self.loss_mask)

    @property
    def prompt_length(self) -> int:
        """Tokens before the first response."""
        return self.turns[0].start if self.turns else self.length
