"""GRPO in twenty lines: groups of rollouts in, advantages, a gradient, new weights; each step in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lightstream.trainers import Group, Policy, Settings, trajectories

__all__ = ["grpo"]


def advantages(group: Group) -> list[float]:
    """Of each rollout: how much better than the mean of its group."""
    rewards = np.array([t.reward or 0.0 for t in group.trajectories])
    return [float(a) for a in (rewards - rewards.mean()) / (rewards.std(ddof=1) + 1e-6)]


async def grpo(
    run_id: str, policy: Policy, dataset: Sequence[Any], *, tasks: int, steps: int, updates: int = 1, settings: Settings
) -> None:
    """Train a policy for so many steps, each with so many updates; started again, go on after the last one."""
    policy.sample(dataset, tasks=tasks)
    run = trajectories(run_id, trainer_id=run_id, policy=policy, groups=tasks, steps=steps, settings=settings)
    async for step in run:
        data = [(t, a) for group in step.groups for t, a in zip(group.trajectories, advantages(group), strict=True)]
        for _ in range(updates):
            step.metrics |= await policy.forward_backward(data)
            step.metrics |= await policy.optim_step()
        await policy.publish()
        policy.sample(dataset, tasks=tasks)
        print(
            f"step {step.number}: mean reward {np.mean([t.reward or 0.0 for t in step.trajectories]):.3f}", flush=True
        )
