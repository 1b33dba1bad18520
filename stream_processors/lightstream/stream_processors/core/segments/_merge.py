"""Merging turns: one sequence where a prompt continues the previous one exactly, else a new one with its reason."""

from __future__ import annotations

import math
from collections.abc import Sequence

from lightstream.schemas.packing import TOKEN_BYTES, pack_float32, pack_int32
from lightstream.schemas.records import Trajectory, TripletRecord

from ._model import NO_VERSION, Segment, SegmentStart, Turn
from ._prefix_index import PrefixIndex

__all__ = ["merge_segments", "segments_of", "transitions_of"]

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

    A call joins the segment of its agent whose ids its prompt begins with, all of them; of several the longest. Calls
    of different agents are not merged. A call longer than ``tokens_max`` (prompt and response together) stands alone,
    whole. Linear in the tokens of the triplets.
    """
    growing: list[_Growing] = []
    index: PrefixIndex[_Growing] = PrefixIndex()
    latest: dict[str | None, _Growing] = {}
    for triplet in triplets:
        agent = triplet.agent_name
        length = (len(triplet.prompt_token_ids) + len(triplet.response_token_ids)) // TOKEN_BYTES
        if tokens_max is not None and length > tokens_max:
            growing.append(_Growing(triplet, SegmentStart.TOO_LONG, -1))
            continue
        segment = index.take(agent, triplet.prompt_token_ids)
        if segment is not None and triplet.prompt_token_ids.startswith(segment.ids):
            segment.extend(triplet)
        else:
            segment = _Growing(triplet, *_why(triplet, latest))
            growing.append(segment)
        index.add(agent, segment.ids, segment)
        latest[agent] = segment
    return [_finish(position, segment) for position, segment in enumerate(growing)]


def _why(triplet: TripletRecord, latest: dict[str | None, _Growing]) -> tuple[SegmentStart, int]:
    """Why a call continues nothing, seen against its agent's latest segment."""
    previous = latest.get(triplet.agent_name)
    if previous is None:
        return (SegmentStart.SUB_AGENT if latest else SegmentStart.FIRST), -1
    prompt = triplet.prompt_token_ids
    common = _common_prefix(prompt, previous.ids) // TOKEN_BYTES
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
        reward = _NAN if triplet.reward is None else pack_float32([triplet.reward])
        rewards += [bytes((between + count - 1) * TOKEN_BYTES), reward]
        at = start + count
        turns.append(Turn(triplet.call_index, triplet.span_id, start, at, version, triplet.reward))
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
    )


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
    """What int32 holds of it: a larger one, say a date and time, is the turn's alone."""
    return version if version is not None and 0 <= version < 2**31 else NO_VERSION


_NO_VERSION = pack_int32([NO_VERSION])
