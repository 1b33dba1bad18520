"""Cutting a segment to a length without moving a mask."""

from __future__ import annotations

from typing import Literal

from lightstream.schemas.errors import SettingsError
from lightstream.schemas.packing import pack_float32

from ._model import Segment, Turn

__all__ = ["truncate"]

_REWARD_BYTES = 4


def truncate(segment: Segment, tokens_max: int, *, keep: Literal["start", "end"] = "start") -> Segment:
    """The first (``start``) or last (``end``) ``tokens_max`` tokens, every array cut alike.

    A turn that is cut keeps its reward, on its last token that is left; a turn of which nothing is left is gone with
    its reward. The segment is unchanged, and returned as it is when it fits.

    Raises:
        SettingsError: ``tokens_max`` is not positive.
    """
    if tokens_max < 1:
        raise SettingsError(f"cannot cut a segment of {segment.length} tokens to {tokens_max}; at least 1 must stay.")
    if segment.length <= tokens_max:
        return segment
    first = 0 if keep == "start" else segment.length - tokens_max
    last = first + tokens_max
    turns = tuple(
        Turn(
            turn.call_index,
            turn.span_id,
            max(turn.start, first) - first,
            min(turn.end, last) - first,
            turn.policy_version,
            turn.reward,
        )
        for turn in segment.turns
        if turn.start < last and turn.end > first
    )
    rewards = bytearray(segment.rewards[first * 4 : last * 4])
    for turn in turns:
        if turn.end == tokens_max:
            value = float("nan") if turn.reward is None else turn.reward
            rewards[(turn.end - 1) * _REWARD_BYTES : turn.end * _REWARD_BYTES] = pack_float32([value])
    return Segment(
        index=segment.index,
        agent_name=segment.agent_name,
        token_ids=segment.token_ids[first * 4 : last * 4],
        loss_mask=segment.loss_mask[first:last],
        logprobs=segment.logprobs[first * 4 : last * 4],
        policy_versions=segment.policy_versions[first * 4 : last * 4],
        rewards=bytes(rewards),
        turns=turns,
        start_reason=segment.start_reason,
        diverged_at=segment.diverged_at,
    )
