"""Trajectory-level sequences: calls merged where one prompt continues the previous sequence exactly.

Else a new sequence begins, and records the reason.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Generic, TypeVar

from lightstream.schemas.packing import TOKEN_BYTES, is_float32, pack_float32, pack_int32
from lightstream.schemas.records import Trajectory, TripletRecord

NO_VERSION = -1
"""``policy_versions`` of a token that was not sampled, or whose version is unknown or beyond int32."""


class SegmentStart(StrEnum):
    """Reason for which a segment begins: its first call does not continue an earlier segment."""

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

    ``reward`` is the triplet's (``None``: missing); ``images`` is how many of the segment's images come before it.
    """

    call_index: int
    span_id: str
    start: int
    end: int
    policy_version: int | None
    reward: float | None
    images: int = 0


@dataclass(frozen=True, slots=True)
class Segment:
    """One sequence of T tokens: a first prompt, then responses with the text between them.

    All arrays are packed little-endian and aligned, one entry per token:

    Attributes:
        token_ids: int32 (T,).
        loss_mask: uint8 (T,): 1 exactly where the policy sampled the token.
        logprobs: float32 (T,): as sampled; 0.0 where not sampled, NaN where the server did not say.
        policy_versions: int32 (T,): the version that sampled the token, else :data:`NO_VERSION`.
        rewards: float32 (T,): each turn's reward on its last token, NaN there when missing, infinite when beyond
            float32; 0.0 elsewhere.
        turns: the calls, in order; their ranges are what ``loss_mask`` marks.
        images: numbers of the images that the last prompt shows, in their order, among the trajectory's.
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
    images: tuple[int, ...] = ()

    @property
    def length(self) -> int:
        """T, in tokens."""
        return len(self.loss_mask)

    @property
    def prompt_length(self) -> int:
        """Tokens before the first response."""
        return self.turns[0].start if self.turns else self.length


_T = TypeVar("_T")

BLOCK_BYTES = 64 * TOKEN_BYTES
"""Sequences are told apart by a chained hash per block; what is left over (under 64 tokens) is looked up as it is."""

_Scope = str | None


class _PrefixIndex(Generic[_T]):
    """Maps whole sequences (packed int32) to values; looks up the longest one that begins a given prompt."""

    def __init__(self) -> None:
        self._entries: dict[tuple[_Scope, int, int], dict[bytes, list[_T]]] = {}

    def add(self, scope: _Scope, sequence: bytes, value: _T) -> None:
        """Let prompts within ``scope`` that begin with all of ``sequence`` find ``value``."""
        blocks = len(sequence) // BLOCK_BYTES
        key = (scope, blocks, _chain(sequence, blocks)[-1])
        rest = sequence[blocks * BLOCK_BYTES :]
        self._entries.setdefault(key, {}).setdefault(rest, []).append(value)

    def take(self, scope: _Scope, prompt: bytes, fits: Callable[[_T], bool]) -> _T | None:
        """Remove and return the value of the longest sequence that begins ``prompt`` (the latest of equal ones).

        Values that do not fit stay where they are.
        """
        chain = _chain(prompt, len(prompt) // BLOCK_BYTES)
        for blocks in range(len(chain) - 1, -1, -1):
            entries = self._entries.get((scope, blocks, chain[blocks]))
            if not entries:
                continue
            start = blocks * BLOCK_BYTES
            longest = min(len(prompt) - start, BLOCK_BYTES - TOKEN_BYTES)
            for length in range(longest - longest % TOKEN_BYTES, -1, -TOKEN_BYTES):
                values = entries.get(prompt[start : start + length], [])
                for place in reversed(range(len(values))):
                    if fits(values[place]):
                        return values.pop(place)
        return None


def _chain(sequence: bytes, blocks: int) -> list[int]:
    """Hash of the first 0, 1, … ``blocks`` blocks."""
    hashes = [0]
    for start in range(0, blocks * BLOCK_BYTES, BLOCK_BYTES):
        hashes.append(hash((hashes[-1], sequence[start : start + BLOCK_BYTES])))
    return hashes


_NAN = pack_float32([math.nan])


class _Growing:
    """A segment that calls may still continue."""

    def __init__(self, triplet: TripletRecord, reason: SegmentStart, diverged_at: int) -> None:
        self.agent_name = triplet.agent_name
        self.reason = reason
        self.diverged_at = diverged_at
        self.ids = b""
        self.triplets: list[TripletRecord] = []
        self.starts: list[int] = []
        self.extend(triplet)

    def extend(self, triplet: TripletRecord) -> None:
        """Append a call whose prompt begins with all of ``ids``."""
        self.starts.append(len(triplet.prompt_token_ids) // TOKEN_BYTES)
        self.ids = triplet.prompt_token_ids + triplet.response_token_ids
        self.triplets.append(triplet)


def _begins(triplet: TripletRecord, segment: _Growing) -> bool:
    """Whether a call's prompt begins with all of a segment, and with the same images."""
    images = segment.triplets[-1].images
    return triplet.images[: len(images)] == images and triplet.prompt_token_ids.startswith(segment.ids)


def segments_of(trajectory: Trajectory, tokens_max: int | None = None) -> list[Segment]:
    """Trajectory-level segments of ``trajectory``, in the order in which they begin. It is unchanged."""
    return merge_segments(trajectory.triplets, tokens_max)


def transitions_of(trajectory: Trajectory) -> list[Segment]:
    """Transition-level: one segment per call, nothing merged."""
    segments: list[Segment] = []
    for index, triplet in enumerate(trajectory.triplets):
        reason = SegmentStart.BRANCH if index else SegmentStart.FIRST
        segments.append(_finish(index, _Growing(triplet, reason, -1)))
    return segments


def merge_segments(triplets: Sequence[TripletRecord], tokens_max: int | None = None) -> list[Segment]:
    """Merge calls (in log order) into segments: each sampled token is in exactly one, with mask 1, once.

    A call joins the segment of its agent whose ids its prompt begins with, all of them, and whose images it shows; of
    several the longest. Calls of different agents are not merged. A call longer than ``tokens_max`` (prompt and
    response together) stands alone, whole. Linear in the tokens of the triplets.
    """
    growing: list[_Growing] = []
    index: _PrefixIndex[_Growing] = _PrefixIndex()
    latest: dict[str | None, _Growing] = {}
    for triplet in triplets:
        agent = triplet.agent_name
        length = (len(triplet.prompt_token_ids) + len(triplet.response_token_ids)) // TOKEN_BYTES
        if tokens_max is not None and length > tokens_max:
            growing.append(_Growing(triplet, SegmentStart.TOO_LONG, -1))
            continue
        segment = index.take(agent, triplet.prompt_token_ids, partial(_begins, triplet))
        if segment is not None:
            segment.extend(triplet)
        else:
            segment = _Growing(triplet, *_why(triplet, latest))
            growing.append(segment)
        index.add(agent, segment.ids, segment)
        latest[agent] = segment
    return [_finish(position, segment) for position, segment in enumerate(growing)]


def _why(triplet: TripletRecord, latest: dict[str | None, _Growing]) -> tuple[SegmentStart, int]:
    """Return the reason for which a call continues nothing, seen against its agent's latest segment."""
    previous = latest.get(triplet.agent_name)
    if previous is None:
        return (SegmentStart.SUB_AGENT if latest else SegmentStart.FIRST), -1
    prompt = triplet.prompt_token_ids
    common = _common_prefix(prompt, previous.ids) // TOKEN_BYTES
    if prompt.startswith(previous.ids) and not _begins(triplet, previous):
        return SegmentStart.EDITED_HISTORY, common  # other images at the same places
    if common * TOKEN_BYTES == len(prompt):
        return SegmentStart.BRANCH, common
    reason = SegmentStart.EDITED_HISTORY
    for start, sampled in zip(previous.starts, previous.triplets, strict=True):
        if common < start:
            break
        ends = start + len(sampled.response_token_ids) // TOKEN_BYTES
        reason = SegmentStart.BRANCH if common >= ends else SegmentStart.RETOKENISED
    return reason, common


def _common_prefix(a: bytes, b: bytes) -> int:
    """Length in bytes of the longest common prefix, by bisection."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _finish(index: int, segment: _Growing) -> Segment:
    mask: list[bytes] = []
    logprobs: list[bytes] = []
    versions: list[bytes] = []
    rewards: list[bytes] = []
    turns: list[Turn] = []
    at = 0
    for start, triplet in zip(segment.starts, segment.triplets, strict=True):
        between = start - at
        count = len(triplet.response_token_ids) // TOKEN_BYTES
        version = triplet.policy_version
        mask += [bytes(between), triplet.response_mask]
        logprobs += [bytes(between * TOKEN_BYTES), triplet.response_logprobs or _NAN * count]
        versions += [_NO_VERSION * between, *_versions(triplet, count)]
        reward = _NAN if triplet.reward is None else pack_float32([_within_float32(triplet.reward)])
        rewards += [bytes((between + count - 1) * TOKEN_BYTES), reward]
        at = start + count
        turns.append(Turn(triplet.call_index, triplet.span_id, start, at, version, triplet.reward, len(triplet.images)))
    return Segment(
        index=index,
        agent_name=segment.agent_name,
        token_ids=segment.ids,
        loss_mask=b"".join(mask),
        logprobs=b"".join(logprobs),
        policy_versions=b"".join(versions),
        rewards=b"".join(rewards),
        turns=tuple(turns),
        start_reason=segment.reason,
        diverged_at=segment.diverged_at,
        images=tuple(segment.triplets[-1].images),
    )


def _within_float32(reward: float) -> float:
    return reward if is_float32(reward) or math.isnan(reward) else math.copysign(math.inf, reward)


def _versions(triplet: TripletRecord, count: int) -> list[bytes]:
    """The version of each of the ``count`` response tokens, packed."""
    runs = triplet.policy_version_runs
    if not runs:
        return [pack_int32([_token_version(triplet.policy_version)]) * count]
    ends = [min(run.first_token, count) for run in runs[1:]] + [count]
    packed = [_NO_VERSION * min(runs[0].first_token, count)]
    for run, end in zip(runs, ends, strict=True):
        start = min(run.first_token, count)
        packed.append(pack_int32([_token_version(run.policy_version)]) * max(0, end - start))
    return packed


def _token_version(version: int | None) -> int:
    """The version as int32; a larger one, say a date and time, is the turn's alone."""
    return version if version is not None and 0 <= version < 2**31 else NO_VERSION


_NO_VERSION = pack_int32([NO_VERSION])
