"""The rewards of a trajectory that count, by the call that they were given to."""

from __future__ import annotations

from typing import Any

from lightstream.schemas.records import RewardMatch, RewardRecord, Trajectory
from lightstream.stream_processors.core.rewards import AUTOMATIC

_MATCHED = (RewardMatch.LINK, RewardMatch.LOG_ORDER, RewardMatch.TRAJECTORY)


def rewards_given(trajectory: Trajectory) -> dict[int | None, list[dict[str, Any]]]:
    """Call (``None``: the whole trajectory) -> name and value of each dimension of the reward that counts.

    That is the last one with a first dimension. Automatic rewards are left out: rules make them anew.
    """
    counted: dict[int | None, tuple[str, str, int]] = {}
    for reward in trajectory.rewards:
        if reward.dimension == 0 and reward.match in _MATCHED and not reward.name.startswith(f"{AUTOMATIC}."):
            counted[reward.call_index] = _source(reward)
    given: dict[int | None, list[dict[str, Any]]] = {}
    for reward in trajectory.rewards:
        if counted.get(reward.call_index) == _source(reward) and reward.match in _MATCHED:
            given.setdefault(reward.call_index, []).append({"name": reward.name, "value": reward.value})
    return given


def _source(reward: RewardRecord) -> tuple[str, str, int]:
    return reward.trace_id, reward.span_id, reward.source_offset
