"""Chat lines to fine-tune on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal, TypeAlias

from lightstream.schemas.records import DropReason, Trajectory, TripletRecord
from lightstream.stream_processors.core.messages import Conversation
from lightstream.stream_processors.core.segments import segments_of

from .conversations import conversations_of, said_by
from .paging import Ask

__all__ = ["ChatLevel", "chat_lines"]

ChatLevel: TypeAlias = Literal["call", "segment"]


def chat_lines(
    ask: Ask,
    trajectories: Iterable[Trajectory],
    level: ChatLevel = "segment",
    reward_min: float | None = None,
) -> Iterator[dict[str, Any]]:
    """OpenAI's fine-tuning format: ``messages`` and ``tools``, with ``reward`` and where it comes from.

    Args:
        level: a line for each call; or for each merged segment its last call, which holds the turns before it. Of a
            trajectory whose calls have no token ids, and so no segments: its last call.
        reward_min: leave out calls with a smaller reward, or without one.

    Raises:
        QueryError, ServiceUnavailableError: the view could not answer.
    """
    for trajectory in trajectories:
        if trajectory.triplets:
            yield from _of_triplets(ask, trajectory, level, reward_min)
        else:
            yield from _without_tokens(ask, trajectory, level, reward_min)


def _of_triplets(
    ask: Ask, trajectory: Trajectory, level: ChatLevel, reward_min: float | None
) -> Iterator[dict[str, Any]]:
    triplets = trajectory.triplets if level == "call" else _last_calls(trajectory)
    for told in conversations_of(ask, trajectory, [t for t in triplets if _good(t.reward, reward_min)]):
        triplet = told.triplet
        yield _line(told.conversation, triplet.choice_index, triplet.reward, trajectory, triplet.call_index)


def _without_tokens(
    ask: Ask, trajectory: Trajectory, level: ChatLevel, reward_min: float | None
) -> Iterator[dict[str, Any]]:
    """Calls without recorded token ids: text is all that fine-tuning needs. The reward is the trajectory's."""
    if not _good(trajectory.reward, reward_min):
        return
    dropped = [drop for drop in trajectory.drops if drop.is_llm_call and drop.reason == DropReason.NO_TOKEN_IDS]
    said = said_by(ask, trajectory, [drop.span_id for drop in dropped])
    told = [drop for drop in dropped if drop.span_id in said]
    for drop in told if level == "call" else told[-1:]:
        yield _line(said[drop.span_id], drop.choice_index, trajectory.reward, trajectory, None)


def _good(reward: float | None, reward_min: float | None) -> bool:
    return reward_min is None or (reward is not None and reward >= reward_min)


def _line(
    conversation: Conversation, choice_index: int, reward: float | None, trajectory: Trajectory, call_index: int | None
) -> dict[str, Any]:
    line: dict[str, Any] = {"messages": conversation.whole(choice_index)}
    if conversation.tools:
        line["tools"] = conversation.tools
    return line | {"reward": reward, "rollout_id": trajectory.rollout_id, "call_index": call_index}


def _last_calls(trajectory: Trajectory) -> list[TripletRecord]:
    by_index = {t.call_index: t for t in trajectory.triplets}
    return [by_index[segment.turns[-1].call_index] for segment in segments_of(trajectory)]
