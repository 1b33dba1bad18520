"""Chat lines to fine-tune on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from lightstream.schemas.records import Drop, Trajectory, TripletRecord
from lightstream.stream_processors.core.segments import segments_of

from .conversations import Told, calls_of_text, conversations_of
from .given import rewards_given
from .paging import Ask

ChatLevel: TypeAlias = Literal["call", "segment"]


def chat_lines(
    ask: Ask,
    trajectories: Iterable[Trajectory],
    level: ChatLevel = "segment",
    reward_min: float | None = None,
    left_out: Counter[str] | None = None,
) -> Iterator[dict[str, Any]]:
    """OpenAI's fine-tuning format: ``messages`` and ``tools``, with ``reward`` and where it comes from.

    A conversation of which part is missing is left out. What the model thought is ``reasoning_content``.

    Args:
        level: a line for each call; or for each merged segment its last call, which holds the turns before it. Of a
            trajectory whose calls have no token ids, and so no segments: its last call. Of a call whose span tells of
            several choices, and which has no token ids, each choice.
        reward_min: leave out calls with a smaller reward, or without one.
        left_out: gets what was left out, in words -> how often.

    Raises:
        QueryError, ServiceUnavailableError: the view could not answer.
    """
    counts: Counter[str] = Counter() if left_out is None else left_out
    for trajectory in trajectories:
        given = rewards_given(trajectory)
        if trajectory.triplets:
            triplets = trajectory.triplets if level == "call" else _last_calls(trajectory)
            chosen: list[TripletRecord | Drop] = [t for t in triplets if _good(t.reward, reward_min)]
        else:
            chosen = [call for call in calls_of_text(trajectory) if _good(_reward(call, trajectory, given), reward_min)]
        lines = [
            _line(text, choice, _reward(text.call, trajectory, given), trajectory)
            for text in _whole(conversations_of(ask, trajectory, chosen), counts)
            for choice in _choices(text, chosen)
        ]
        if not trajectory.triplets and level == "segment" and lines:
            last = lines[-1]["call_index"]
            lines = [line for line in lines if line["call_index"] == last] if last is not None else lines[-1:]
        yield from lines


def _whole(texts: Iterable[Told], counts: Counter[str]) -> Iterator[Told]:
    """Those of which nothing is missing."""
    for text in texts:
        if text.conversation.incomplete:
            counts[f"a conversation: {text.conversation.incomplete}"] += 1
            continue
        counts.update(f"{kind}, of a conversation" for kind in text.conversation.left_out)
        yield text


def _choices(text: Told, calls: Sequence[TripletRecord | Drop]) -> Sequence[int]:
    """Choices that a call stands for: its own; all, where its span tells of several that are no calls of their own."""
    call, answers = text.call, len(text.conversation.answer)
    alone = sum(other.span_id == call.span_id for other in calls) == 1
    return range(answers) if isinstance(call, Drop) and alone and answers > 1 else (call.choice_index,)


def _reward(
    call: TripletRecord | Drop, trajectory: Trajectory, given: Mapping[int | None, Sequence[Mapping[str, Any]]]
) -> float | None:
    """A triplet's is what credit assignment made of it; of other calls their own, else the trajectory's."""
    if isinstance(call, TripletRecord):
        return call.reward
    own = given.get(call.call_index, ()) if call.call_index is not None else ()
    return own[0]["value"] if own else trajectory.reward


def _good(reward: float | None, reward_min: float | None) -> bool:
    return reward_min is None or (reward is not None and reward >= reward_min)


def _line(text: Told, choice_index: int, reward: float | None, trajectory: Trajectory) -> dict[str, Any]:
    line: dict[str, Any] = {"messages": text.conversation.whole(choice_index)}
    if text.conversation.tools:
        line["tools"] = text.conversation.tools
    return line | {"reward": reward, "rollout_id": trajectory.rollout_id, "call_index": text.call.call_index}


def _last_calls(trajectory: Trajectory) -> list[TripletRecord]:
    by_index = {t.call_index: t for t in trajectory.triplets}
    return [by_index[segment.turns[-1].call_index] for segment in segments_of(trajectory)]
