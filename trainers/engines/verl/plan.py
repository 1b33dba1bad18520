"""The plan of an update: which rows, with which weights, and which passes in which order. No model is needed for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from ...rollouts.batch import BatchArrays, LossNormalisation, token_weights
from .config import VerlConfig

Pass: TypeAlias = Literal["reward_kl", "correct", "weigh", "values", "reference", "compare", "actor", "look", "critic"]
"""A part of an update:

| pass | does |
|---|---|
| ``reward_kl`` | the KL of each token to the reference, for its reward |
| ``correct`` | the actor's log-probabilities, and the off-policy correction by them |
| ``weigh`` | the weight of each token in the loss |
| ``values`` | the critic's values, and the advantages by them |
| ``reference`` | the reference's log-probabilities, for the loss |
| ``compare`` | the actor's log-probabilities beside the sampler's, before the first update |
| ``actor`` | the actor learns, mini-batch by mini-batch |
| ``look`` | what was compared, where the actor does not learn |
| ``critic`` | the critic learns, mini-batch by mini-batch |
"""


@dataclass(frozen=True, slots=True)
class UpdatePlan:
    """The plan of one update.

    Attributes:
        passes: in their order; none is there twice.
        rows: the rows that are computed, ascending.
        compared: bool (sum R,): tokens that should have the actor's log-probabilities.
        mini_batches: the rows of each step of the optimiser, ascending; none is empty.
        compares_in_update: whether actor and sampler are compared in the actor's one step, and not before it.
        torch_seed: of dropout.
        factor: what the weight of a token is multiplied with, as each step of the optimiser sees a part of the batch.
        normalisation, constant_tokens: what weighs the same in the loss: see ``token_weights``.
    """

    passes: tuple[Pass, ...]
    rows: list[int]
    compared: npt.NDArray[np.bool_]
    mini_batches: list[list[int]]
    compares_in_update: bool
    torch_seed: int
    factor: int
    normalisation: LossNormalisation
    constant_tokens: int

    def weights(self, arrays: BatchArrays) -> npt.NDArray[np.float64]:
        """The weight of each response token in the loss, float64 (sum R,), once rejected tokens are masked."""
        return token_weights(arrays, self.normalisation, constant_tokens=self.constant_tokens) * self.factor


def plan_update(
    config: VerlConfig,
    arrays: BatchArrays,
    *,
    policy_version: int | None,
    seed: Sequence[int],
    critic_learns_alone: bool = False,
) -> UpdatePlan:
    """The plan of an update on a batch of at least one row. It is the same in every process that makes it.

    Args:
        config: the options.
        arrays: N rows, as they were sampled.
        policy_version: tokens of this version are compared; ``None``: all that are trained on.
        seed: numbers that the order of mini-batches, and dropout, follow from.
        critic_learns_alone: whether the critic warms up.
    """
    trained = arrays.response_mask == 1
    rows = list(range(len(arrays))) if config.trains_every_row else sorted(set(arrays.rows_with_signal.tolist()))
    count, computed = min(config.mini_batches_per_step, len(arrays)), set(rows)
    mini_batches = [
        chosen
        for epoch in range(config.epochs_per_step)
        for part in select_mini_batches(len(arrays), count, (*seed, epoch))
        if (chosen := sorted(computed.intersection(part)))
    ]
    compares = config.correction is None  # else the correction's pass has done it
    return UpdatePlan(
        passes=_passes(
            config,
            corrects=config.correction is not None and bool(rows),
            compares_before=compares and (critic_learns_alone or len(mini_batches) > 1),
            critic_learns_alone=critic_learns_alone,
        ),
        rows=rows,
        compared=trained if policy_version is None else trained & (arrays.policy_versions == policy_version),
        mini_batches=mini_batches,
        compares_in_update=compares and len(mini_batches) == 1,
        torch_seed=int(np.random.default_rng(list(seed)).integers(2**63)),
        factor=count,
        normalisation=config.normalisation,
        constant_tokens=config.response_tokens_max or 1,
    )


def _passes(
    config: VerlConfig, *, corrects: bool, compares_before: bool, critic_learns_alone: bool
) -> tuple[Pass, ...]:
    wanted: dict[Pass, bool] = {
        "reward_kl": config.has_critic and config.kl_reward_coefficient != 0.0,
        "correct": corrects,
        "weigh": True,
        "values": config.has_critic,
        "reference": config.kl_loss_coefficient != 0.0 and not critic_learns_alone,
        "compare": compares_before,
        "actor": not critic_learns_alone,
        "look": critic_learns_alone,
        "critic": config.has_critic,
    }
    return tuple(name for name, is_wanted in wanted.items() if is_wanted)


def select_mini_batches(rows: int, mini_batches: int, seed: Sequence[int]) -> list[list[int]]:
    """Rows 0 … ``rows`` - 1, shuffled, in at most ``mini_batches`` parts that differ by one row at most.

    No row is left out and none is in two parts. A single part keeps the order.

    Args:
        seed: numbers that the order follows from.
    """
    if mini_batches <= 1 or rows <= 1:
        return [list(range(rows))] if rows else []
    order: npt.NDArray[np.int64] = np.random.default_rng(list(seed)).permutation(rows)
    return [part.tolist() for part in np.array_split(order, min(mini_batches, rows))]
