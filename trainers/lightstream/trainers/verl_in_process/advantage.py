"""Advantages by verl's own estimator, one score per unit, spread over the unit's tokens."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..batch import BatchArrays

__all__ = ["row_advantages"]


def row_advantages(arrays: BatchArrays, estimator: str) -> npt.NDArray[np.float32]:
    """Advantage of each row, float32 (N,).

    Args:
        arrays: the batch; ``unit_rewards`` (U,) are scored within ``unit_groups`` (U,).
        estimator: ``grpo`` or ``dr_grpo``.

    A group whose rewards are all the same gets zeros. A group of one has nothing to be compared with: verl gives it
    its reward.
    """
    import torch
    from verl.trainer.ppo.core_algos import compute_grpo_outcome_advantage

    scores = torch.from_numpy(arrays.unit_rewards.copy()).unsqueeze(1)  # (U, 1): one "token" per unit
    advantages, _ = compute_grpo_outcome_advantage(
        token_level_rewards=scores,
        response_mask=torch.ones_like(scores),
        index=np.array(arrays.unit_groups, dtype=object),
        norm_adv_by_std_in_grpo=estimator == "grpo",
    )
    per_unit: npt.NDArray[np.float32] = advantages[:, 0].numpy()
    return per_unit[arrays.unit_of_row]
