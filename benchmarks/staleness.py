"""Learning from rollouts of an old policy: ``python -m benchmarks.staleness``.

The demonstration's task, in memory, without Kafka and servers. In each seed the same training is made three times: from
rollouts of the current policy, and from rollouts of the policy ``ahead`` updates before, with the off-policy correction
and without. Bar: with the correction, the mean reward of the last five steps is at least 0.95 of that on policy.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from statistics import fmean, median
from typing import Any

from examples.tool_router.options import Options
from lightstream.trainers import RolloutCorrection

from .command import run
from .learning_seeds import WINDOW, learn


def measure(*, seeds: int = 5, steps: int = 60, ahead: int = 8) -> dict[str, float]:
    """Rewards of the last five steps of each, and their ratios to those on policy."""
    ways: dict[str, dict[str, Any]] = {
        "on_policy": {},
        "corrected": {"lag": ahead, "rollout_correction": RolloutCorrection()},
        "uncorrected": {"lag": ahead},
    }
    last: dict[str, list[float]] = {name: [] for name in ways}
    for seed in range(seeds):
        for name, changes in ways.items():
            rewards = list(learn(replace(Options(), seed=seed), steps=steps, reward_target=None, **changes))
            last[name].append(fmean(rewards[-WINDOW:]))
        print(f"seed {seed}: {', '.join(f'{name} {of[-1]:.3f}' for name, of in last.items())}", file=sys.stderr)
    figures = {f"last_reward_{name}": median(of) for name, of in last.items()}
    for name in ("corrected", "uncorrected"):
        ratios = [reward / truth for reward, truth in zip(last[name], last["on_policy"], strict=True)]
        figures |= {f"{name}_ratio": median(ratios), f"{name}_ratio_min": min(ratios)}
    return figures


def main() -> None:
    """Print the figures."""
    run(__doc__, measure, seeds=5, steps=60, ahead=8)


if __name__ == "__main__":
    main()
