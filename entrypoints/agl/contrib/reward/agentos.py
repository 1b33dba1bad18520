"""Rewards that policy violations lower."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lightstream.producers import emit_reward
from lightstream.producers.policy import PolicyKernel
from lightstream.producers.policy.kernel import PENALTIES

__all__ = ["PolicyReward"]


def _of_success(rollout: Any) -> float:
    """1 for a rollout that succeeded."""
    return 1.0 if getattr(rollout, "success", False) else 0.0


class PolicyReward:
    """The reward of a governed rollout (from ``AgentOSRunner.step``): its base and the price of each violation.

    Args:
        kernel: the kernel whose violations these are.
        base_reward_fn: the reward without them; by default 1 for success and 0 else.
        critical_penalty, high_penalty, medium_penalty, low_penalty: of a violation of that severity, 0 or less; of
            any other severity that of ``medium``.
        clean_bonus: of a rollout without one.
    """

    def __init__(
        self,
        kernel: PolicyKernel,
        *,
        base_reward_fn: Callable[[Any], float] | None = None,
        critical_penalty: float = PENALTIES["critical"],
        high_penalty: float = PENALTIES["high"],
        medium_penalty: float = PENALTIES["medium"],
        low_penalty: float = PENALTIES["low"],
        clean_bonus: float = 5.0,
    ) -> None:
        self.kernel = kernel
        self.base_reward_fn = base_reward_fn or _of_success
        self.penalties = {
            "critical": critical_penalty,
            "high": high_penalty,
            "medium": medium_penalty,
            "low": low_penalty,
        }
        self.clean_bonus = clean_bonus
        self._given = 0
        self._penalties = 0.0

    def __call__(self, rollout: Any, *, emit: bool = True) -> float:
        """The reward of ``rollout``, from its ``violations``.

        Args:
            emit: also emit it, with its parts, as the reward of the attempt that runs here.

        Raises:
            NoActiveTracerError: it is to be emitted, and nothing here takes spans.
        """
        violations = list(getattr(rollout, "violations", ()))
        base = float(self.base_reward_fn(rollout))
        penalty = sum(self.penalties.get(each.severity, self.penalties["medium"]) for each in violations)
        reward = base + (penalty if violations else self.clean_bonus)
        self._given += 1
        self._penalties += penalty
        if emit:
            parts = {"final": reward, "base": base, "policy_penalty": float(penalty)}
            emit_reward(parts, primary_key="final", attributes={"agent_os.violations": len(violations)})
        return reward

    def get_stats(self) -> dict[str, float]:
        """``total_rewards`` that were given, and ``avg_penalty``, the penalty of one."""
        return {"total_rewards": self._given, "avg_penalty": self._penalties / self._given if self._given else 0.0}
