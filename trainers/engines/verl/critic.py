"""A critic's part: advantages of single tokens (GAE, arXiv:1506.02438), and the loss that its values learn by."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ...rollouts.batch import AdvantagePer, BatchArrays
from .shards import Shard

VALUES, RETURNS = "values", "returns"
"""Names, in a batch for verl, of what the critic expected at the step's beginning, and of what it should have."""

VARIANCE_EPSILON = 1e-5
"""As verl has it."""


@dataclass(frozen=True, slots=True)
class Estimates:
    """A batch with the advantages of its tokens, and the critic's targets.

    Attributes:
        arrays: the batch; its advantages are whitened over its trained tokens.
        values: float32 (sum R,): what the critic expected before each response token.
        returns: float32 (sum R,): what it should have expected; 0 where the mask is 0.
        metrics: ``critic/values/mean``, ``critic/returns/mean`` and ``critic/vf_explained_var`` (the share of the
            returns' variance that the values explain), over the trained tokens.
    """

    arrays: BatchArrays
    values: npt.NDArray[np.float32]
    returns: npt.NDArray[np.float32]
    metrics: dict[str, float]


def rewards_of_tokens(arrays: BatchArrays, per: AdvantagePer) -> npt.NDArray[np.float64]:
    """The reward of each response token, float64 (sum R,): of the rollout, or of each call, at its last trained token.

    Args:
        arrays: N rows, whose ``advantages`` are the rewards of their rollouts or calls.
        per: whose rewards these are.
    """
    tokens, rollouts, _ = _episodes(arrays)
    calls = arrays.calls[tokens] if per == "turn" else np.zeros_like(tokens)
    is_last = np.append((np.diff(rollouts) != 0) | (np.diff(calls) != 0), True)[: len(tokens)]
    rewards = np.zeros(len(arrays.response_mask))
    rewards[tokens[is_last]] = arrays.advantages[tokens[is_last]]
    return rewards


def estimate(
    arrays: BatchArrays, rewards: npt.NDArray[np.float64], values: npt.NDArray[np.float64], *, gamma: float, lam: float
) -> Estimates:
    """Advantages and returns by verl's ``compute_gae_advantage_return``, in float64.

    A rollout is one episode: the tokens that its calls sampled, as far as they are trained on, in the order of the
    calls, whichever rows they are in. What came between (prompts, answers of tools) is no step of it.

    Args:
        arrays: N rows; their ``advantages`` are not looked at.
        rewards: (sum R,): of each response token.
        values: (sum R,): what the critic expects before each response token.
        gamma: the discount of what a later token brings.
        lam: the weight of later errors of the critic.
    """
    import torch
    import verl.trainer.ppo.core_algos as algorithms

    untyped: Any = algorithms
    tokens, rollouts, places = _episodes(arrays)
    advantages, returns = np.zeros(len(rewards)), np.zeros(len(rewards))
    if len(tokens) == 1:  # verl whitens no single token
        returns[tokens] = rewards[tokens]
    elif len(tokens):
        shape = int(rollouts.max()) + 1, int(places.max()) + 1

        def table(of_tokens: npt.NDArray[np.float64]) -> torch.Tensor:
            filled = np.zeros(shape)
            filled[rollouts, places] = of_tokens
            return torch.from_numpy(filled)

        whitened, expected = untyped.compute_gae_advantage_return(
            token_level_rewards=table(rewards[tokens]),
            values=table(values[tokens]),
            response_mask=table(np.ones(len(tokens))),
            gamma=gamma,
            lam=lam,
        )
        advantages[tokens] = whitened.numpy()[rollouts, places]
        returns[tokens] = expected.numpy()[rollouts, places]
    return Estimates(
        replace(arrays, advantages=advantages.astype(np.float32)),
        values.astype(np.float32),
        returns.astype(np.float32),
        _metrics(values[tokens], returns[tokens]),
    )


class WeightedValueLoss:
    """The sum over tokens of weight * the clipped loss of a value (PPO's, as verl's ``compute_value_loss`` has it).

    Half the squared distance of the value to its return, or of the value as far as it may have moved, whichever is
    larger. The sum is the same however a batch is cut into micro-batches.

    Args:
        clip: so far a value may move from what it was when the step began.
    """

    def __init__(self, clip: float) -> None:
        self._clip = clip
        self._tokens = self._clipped = 0.0

    def start_step(self) -> None:
        """Forget the sums of earlier steps."""
        self._tokens = self._clipped = 0.0

    def __call__(self, model_output: Any, data: Any, dp_group: Any = None) -> Any:
        import torch
        from verl.workers.utils.padding import no_padding_2_padding

        values = no_padding_2_padding(model_output[VALUES], data).float()
        before, returns, weights, mask = (
            data[name].to_padded_tensor(0) for name in (VALUES, RETURNS, "weights", "response_mask")
        )
        near = values.clamp(before - self._clip, before + self._clip)
        plain, clipped = (values - returns) ** 2, (near - returns) ** 2
        loss = 0.5 * (torch.maximum(plain, clipped) * weights).sum()
        self._tokens += float(mask.sum())
        self._clipped += float(((clipped > plain) * mask).sum())
        return loss, {}

    def clipped(self, shard: Shard) -> float:
        """The share of the tokens whose value was too far, of all updates since :meth:`start_step`."""
        tokens, clipped = shard.summed(np.array([self._tokens, self._clipped])).tolist()
        return float(clipped / max(1.0, tokens))


def _episodes(
    arrays: BatchArrays,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Numbers of the trained tokens, rollout by rollout in the order of calls; of each, its rollout, and place in it.

    Rollouts are counted anew, over those with a token that is trained on.
    """
    trained = np.flatnonzero(arrays.response_mask == 1)
    owners = arrays.rollout_of_row[arrays.row_of_token[trained]]
    order = np.lexsort((trained, arrays.calls[trained], owners))
    _, starts, lengths = np.unique(owners[order], return_index=True, return_counts=True)
    rollouts = np.repeat(np.arange(len(lengths)), lengths)
    places = np.arange(len(trained)) - np.repeat(starts, lengths)
    return trained[order], rollouts, places


def _metrics(values: npt.NDArray[np.float64], returns: npt.NDArray[np.float64]) -> dict[str, float]:
    if not len(returns):
        return {}
    unexplained = float(np.var(returns - values)) / (float(np.var(returns)) + VARIANCE_EPSILON)
    return {
        "critic/values/mean": float(values.mean()),
        "critic/returns/mean": float(returns.mean()),
        "critic/vf_explained_var": 1.0 - unexplained,
    }
