"""Metrics of a step's groups and rows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from statistics import fmean, pstdev
from typing import Any

import numpy as np

from lightstream.runtime.clock import NANOS_PER_SECOND
from lightstream.schemas.packing import is_float32
from lightstream.stream_processors.core.segments import NO_VERSION

from ..rollouts.batch import ALL, BatchRows, PolicyGroups, rollout_score
from ..rollouts.groups import Group


def group_metrics(groups: Sequence[Group]) -> dict[str, float]:
    """Reward statistics of a step's groups. ``reward/mean`` is absent where no trajectory has a reward."""
    trajectories = [trajectory for group in groups for trajectory in group.sampled]
    rewards = [t.reward for t in trajectories if t.reward is not None and is_float32(t.reward)]
    uniform = sum(
        len({t.reward for t in group.sampled}) == 1 and group.sampled[0].reward is not None
        for group in groups
        if len(group.sampled) > 1
    )
    metrics = {
        "groups": float(len(groups)),
        "groups/uniform_reward": float(uniform),
        "rollouts": float(len(trajectories)),
        "rollouts/without_reward": float(len(trajectories) - len(rewards)),
        "rollouts/failed": float(sum(t.rollout_status.value != "succeeded" for t in trajectories)),
    }
    if trajectories:
        seconds = fmean(t.closed_unix_nano - t.opened_unix_nano for t in trajectories) / NANOS_PER_SECOND
        metrics["seconds/rollout"] = seconds
    if rewards:
        metrics |= {
            "reward/mean": fmean(rewards),
            "reward/std": pstdev(rewards),
            "reward/min": min(rewards),
            "reward/max": max(rewards),
        }
    return metrics


def batch_metrics(groups: list[Group], rows: BatchRows, version: int) -> dict[str, float]:
    """Sizes, exclusions, lengths and ages of a step's inputs, while the policy is of ``version``."""
    metrics: dict[str, float] = {
        "batch/rows": float(len(rows.rows)),
        "groups/without_signal": float(rows.groups_without_signal),
    }
    metrics |= {f"batch/excluded_{reason.value}": float(count) for reason, count in rows.excluded.items()}
    calls = [triplet for group in groups for t in group.sampled for triplet in t.triplets]
    lengths = [len(triplet.response_mask) for triplet in calls]
    turns = [len(t.triplets) for group in groups for t in group.sampled]
    if lengths:
        metrics |= {
            "response_tokens/mean": fmean(lengths),
            "response_tokens/max": float(max(lengths)),
            "turns/mean": fmean(turns),
            "turns/max": float(max(turns)),
        }
    stale = [version - t.policy_version for t in calls if t.policy_version not in (None, NO_VERSION)]
    if stale:
        ages, counts = np.unique(np.asarray(stale), return_counts=True)
        metrics |= {f"staleness/{age}": float(count) for age, count in zip(ages, counts, strict=True)}
        metrics["batch/staleness_max"] = float(ages.max())
    baselines = [score for group in groups if (t := group.baseline) and (score := rollout_score(t)) is not None]
    if baselines:
        metrics["reward/baseline"] = fmean(baselines)
    return metrics | _rewards_by_source(groups)


def policy_metrics(groups: PolicyGroups, parts: Mapping[str, BatchRows]) -> dict[str, float]:
    """Of each of several policies, how many rollouts it acted in, and their mean score."""
    metrics: dict[str, float] = {}
    for name, of_policy in groups.groups.items():
        if name == ALL:
            continue
        acted = [t for group in of_policy for t in group.sampled if t.triplets]
        scores = [score for t in acted if (score := rollout_score(t)) is not None]
        metrics[f"policy/{name}/rollouts"] = float(len(acted))
        metrics[f"policy/{name}/groups/without_signal"] = float(parts[name].groups_without_signal)
        if scores:
            metrics[f"policy/{name}/reward/mean"] = fmean(scores)
    return metrics


def _rewards_by_source(groups: list[Group]) -> dict[str, float]:
    """Mean reward of each data source, where tasks are objects that name theirs (``data_source`` or ``dataset``)."""
    rewards: dict[str, list[float]] = {}
    for group in groups:
        for trajectory in group.sampled:
            task: Any = json.loads(trajectory.input_json) if trajectory.input_json else None
            source = (task.get("data_source") or task.get("dataset")) if isinstance(task, dict) else None
            if isinstance(source, str) and trajectory.reward is not None and is_float32(trajectory.reward):
                rewards.setdefault(source, []).append(trajectory.reward)
    return {f"reward/mean/{source}": fmean(values) for source, values in sorted(rewards.items())}
