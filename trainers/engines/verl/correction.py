"""Off-policy correction: the policy that sampled the tokens is not the policy that is updated.

Three policies, as in verl's ``algorithm.rollout_correction`` (decoupled mode): the one that sampled, the proximal one
that the step begins with, and the one that is being updated. The ratio is clipped around the proximal policy; the gap
between the first two is corrected by importance weights, cut off at a threshold, and by rejection.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from lightstream.schemas.errors import SettingsError

from ...rollouts.batch import BatchArrays

REJECTIONS = frozenset(
    f"{level}_{statistic}"
    for level in ("token", "seq_sum", "seq_mean", "seq_max")
    for statistic in ("k1", "k2", "k3")
    if (level, statistic) != ("seq_max", "k1")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutCorrection:
    """verl's ``algorithm.rollout_correction``, by its names. A sequence is a row: a merged segment.

    Attributes:
        rollout_is: importance weights of each ``token``, or one of each ``sequence`` (the product over its tokens: no
            bias, much variance); ``None``: none, the ratio is clipped around the proximal policy all the same.
        rollout_is_threshold: larger weights are cut off here.
        rollout_rs: what to reject: statistics of the ratio, comma-separated (``token_k1``, ``seq_mean_k3``, …, see
            verl); ``None``: nothing.
        rollout_rs_threshold: their bounds, as verl takes them (``"0.5_2"`` for k1, ``"0.01"`` for k2 and k3).

    Raises:
        SettingsError: a name is unknown, or a bound missing or not above 0.
    """

    rollout_is: Literal["token", "sequence"] | None = "token"
    rollout_is_threshold: float = 2.0
    rollout_rs: str | None = None
    rollout_rs_threshold: str | float | None = None

    def __post_init__(self) -> None:
        if self.rollout_is not in (None, "token", "sequence"):
            raise SettingsError(f"rollout_is is {self.rollout_is!r}; there are token, sequence and None.")
        if not 0 < self.rollout_is_threshold < float("inf"):
            raise SettingsError(f"rollout_is_threshold is {self.rollout_is_threshold}; a finite number above 0.")
        unknown = {name.strip() for name in (self.rollout_rs or "").split(",") if name.strip()} - REJECTIONS
        if unknown or self.rollout_rs == "":
            raise SettingsError(
                f"rollout_rs is {self.rollout_rs!r}; there are {', '.join(sorted(REJECTIONS))}, and None."
            )
        if self.rollout_rs is not None and self.rollout_rs_threshold is None:
            raise SettingsError(f"rollout_rs {self.rollout_rs!r} has no rollout_rs_threshold.")


@dataclass(frozen=True, slots=True)
class Corrected:
    """A batch as it is to be trained on.

    Attributes:
        arrays: rejected tokens have mask 0; ``response_logprobs`` are the proximal policy's.
        factors: float64 (sum R,): importance weight of each response token; 1 where nothing is corrected.
        metrics: over the corrected tokens: ``correction/ess`` (effective sample size, as a share of the tokens),
            ``correction/weight_mean`` and ``correction/weight_max`` (after the cut), ``correction/cut`` (share of
            the tokens or sequences whose weight was cut off) and ``correction/rejected`` (share of the tokens).
    """

    arrays: BatchArrays
    factors: npt.NDArray[np.float64]
    metrics: dict[str, float]


def correct(
    arrays: BatchArrays, proximal: npt.NDArray[np.floating[Any]], rows: Sequence[int], correction: RolloutCorrection
) -> Corrected:
    """Correct some rows of a batch, by verl's own functions, in float64.

    Args:
        arrays: N rows.
        proximal: (sum R,): log-probability of each response token under the policy that the step begins with.
        rows: which rows, ascending; at least one of their tokens is trained on. The others stay as they are.
        correction: how.

    Raises:
        SettingsError: a threshold is none.
    """
    import torch
    from verl.trainer.ppo import rollout_corr_helper

    helper: Any = rollout_corr_helper
    chosen = np.isin(arrays.row_of_token, np.asarray(rows))
    lengths = arrays.response_lengths[np.asarray(rows)]
    inside = np.arange(int(lengths.max())) < lengths[:, None]

    def padded(values: npt.NDArray[Any]) -> torch.Tensor:
        table = np.zeros(inside.shape)
        table[inside] = values[chosen]
        return torch.from_numpy(table)

    mask = padded(arrays.response_mask)
    try:
        weights, kept, measured = helper.compute_rollout_correction_and_rejection_mask(
            old_log_prob=padded(proximal) * mask,
            rollout_log_prob=padded(arrays.response_logprobs) * mask,
            response_mask=mask,
            rollout_is=correction.rollout_is,
            rollout_is_threshold=correction.rollout_is_threshold,
            rollout_rs=correction.rollout_rs,
            rollout_rs_threshold=correction.rollout_rs_threshold,
        )
    except ValueError as error:
        raise SettingsError(f"verl does not take this rollout correction: {error}") from error
    factors = np.ones(len(chosen))
    new_mask = arrays.response_mask.copy()
    new_mask[chosen] = kept.numpy()[inside]
    trained = mask.bool()
    metrics = {"correction/rejected": 1.0 - float(kept.sum() / mask.sum())}
    if weights is not None:
        table = weights.batch["rollout_is_weights"]
        factors[chosen] = table.numpy()[inside]
        metrics |= {
            "correction/ess": measured["rollout_corr/rollout_is_eff_sample_size"],
            "correction/weight_mean": float(table[trained].mean()),
            "correction/weight_max": float(table[trained].max()),
            "correction/cut": measured["rollout_corr/rollout_is_ratio_fraction_high"],
        }
    corrected = replace(
        arrays,
        response_mask=new_mask,
        advantages=np.where(new_mask == 1, arrays.advantages, np.float32(0)),
        response_logprobs=np.where(chosen & (new_mask == 1), proximal, arrays.response_logprobs).astype(np.float32),
    )
    return Corrected(corrected, factors, metrics)
