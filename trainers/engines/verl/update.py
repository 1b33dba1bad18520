"""An update: the passes of its plan, in their order, on the models of an engine."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ...loop.protocols import NothingLearned
from ...rollouts.batch import BatchArrays, Exclusion
from .config import GAP_MEASURES
from .correction import correct
from .critic import RETURNS, VALUES, Estimates, estimate, rewards_of_tokens
from .model import VerlModel
from .models import Models
from .plan import Pass, UpdatePlan
from .tensors import REFERENCE


class Update:
    """One update, as far as it is made.

    Args:
        models: they learn.
        plan: made of these arrays.
        arrays: N rows.
        gap_max: nothing is learned where the log-probabilities of actor and sampler are further apart.
    """

    def __init__(self, models: Models, plan: UpdatePlan, arrays: BatchArrays, gap_max: float) -> None:
        self._models = models
        self._plan = plan
        self._arrays = arrays
        self._gap_max = gap_max
        self._factors: npt.NDArray[np.float64] = np.ones(len(arrays.response_mask))
        self._weights = np.zeros(len(arrays.response_mask))
        self._kl: npt.NDArray[np.float64] | None = None
        self._reference: dict[str, npt.NDArray[np.float32]] | None = None
        self._estimates: Estimates | None = None
        self._batch: Any = None
        self._metrics: dict[str, float] = {}

    def run(self) -> dict[str, float]:
        """Make it; returns its metrics.

        Raises:
            NothingLearned: the gap is too large, or no mini-batch had a finite gradient. All is as before.
        """
        import torch

        passes: dict[Pass, Callable[[], None]] = {
            "reward_kl": self._reward_kl,
            "correct": self._correct,
            "weigh": self._weigh,
            "values": self._values,
            "reference": self._compute_reference,
            "compare": self._compare,
            "actor": self._actor,
            "look": self._look,
            "critic": self._critic,
        }
        torch.manual_seed(self._plan.torch_seed)
        self._models.loss.start_step()
        self._metrics |= self._models.cost(self._arrays, self._plan.rows)
        for name in self._plan.passes:
            passes[name]()
        return self._metrics

    def check_gap_in_update(self) -> None:
        """Refuse the optimiser's next step, if it compared with the sampler."""
        if self._models.loss.comparing:
            self._check_gap()

    def _reward_kl(self) -> None:
        self._kl = kl_to_reference(self._models, self._arrays)

    def _correct(self) -> None:
        models, plan, arrays = self._models, self._plan, self._arrays
        assert models.config.correction is not None  # noqa: S101  # it is planned
        outputs = models.compare(arrays, plan.rows, plan.compared)
        self._check_gap()
        chosen = np.isin(arrays.row_of_token, plan.rows)
        proximal = np.where(chosen, outputs.of_tokens(arrays, models.shard), arrays.response_logprobs)
        corrected = correct(arrays, proximal.astype(np.float32), plan.rows, models.config.correction)
        self._arrays, self._factors = corrected.arrays, corrected.factors
        self._metrics |= corrected.metrics

    def _weigh(self) -> None:
        self._weights = self._plan.weights(self._arrays)

    def _values(self) -> None:
        """The advantages of a batch whose ``advantages`` are rewards."""
        models, arrays, config = self._models, self._arrays, self._models.config
        values = models.of_tokens(_there(models.critic), arrays)
        rewards = rewards_of_tokens(arrays, config.advantage_per)
        trained = arrays.response_mask == 1
        metrics: dict[str, float] = {}
        if self._kl is not None:
            rewards -= config.kl_reward_coefficient * self._kl
            metrics["actor/reward_kl_penalty"] = float(self._kl[trained].mean()) if trained.any() else 0.0
        self._estimates = estimate(arrays, rewards, values, gamma=config.gamma, lam=config.lam)
        self._arrays = self._estimates.arrays
        self._metrics |= self._estimates.metrics | metrics

    def _compute_reference(self) -> None:
        self._reference = {REFERENCE: self._models.reference_logprobs(self._arrays)}

    def _compare(self) -> None:
        self._models.compare(self._arrays, self._plan.rows, self._plan.compared, self._of_actor())
        self._check_gap()

    def _actor(self) -> None:
        models, plan, batch = self._models, self._plan, self._of_actor()
        models.loss.comparing = plan.compares_in_update
        try:
            found = self._steps(models.actor, batch)
        finally:
            models.loss.comparing = False
        models.loss.add_up(models.shard)
        metrics, not_finite = models.loss.metrics(), sum(not math.isfinite(f["grad_norm"]) for f in found)
        if found and not_finite == len(found):
            raise NothingLearned(Exclusion.NOT_FINITE, _not_finite(self._arrays), metrics)
        skipped = {"updates/not_finite": float(not_finite)} if not_finite else {}
        self._metrics |= _mean(found) | metrics | skipped

    def _look(self) -> None:
        """How far the actor is from what sampled the tokens."""
        self._models.loss.add_up(self._models.shard)
        metrics = self._models.loss.metrics()
        self._metrics |= {name: value for name, value in metrics.items() if name.startswith("logprob_")}

    def _critic(self) -> None:
        models, estimates = self._models, self._estimates
        assert estimates is not None  # noqa: S101  # planned before
        models.value_loss.start_step()
        further = {VALUES: estimates.values, RETURNS: estimates.returns}
        batch = models.batch(self._arrays, weights=self._weights, further=further)
        found = _mean(self._steps(_there(models.critic), batch))
        self._metrics |= {
            "critic/vf_loss": found["loss"],
            "critic/vf_clipfrac": models.value_loss.clipped(models.shard),
            "critic/grad_norm": found["grad_norm"],
            "critic/lr": found["lr"],
        }

    def _of_actor(self) -> Any:
        """The batch that the actor learns from, made once."""
        if self._batch is None:
            weights = self._weights * self._factors
            self._batch = self._models.batch(self._arrays, self._plan.compared, weights, self._reference)
        return self._batch

    def _steps(self, model: VerlModel, batch: Any) -> list[dict[str, float]]:
        """A step of the optimiser for each mini-batch."""
        parts = self._plan.mini_batches
        return [model.update(batch, self._arrays, part, is_last=part is parts[-1]) for part in parts]

    def _check_gap(self) -> None:
        """Refuse to learn where actor and sampler are too far apart."""
        models = self._models
        measured = models.loss.differences(models.shard)
        name = GAP_MEASURES[models.config.dtype]
        if measured[name] > self._gap_max:
            raise NothingLearned(Exclusion.LOGPROB_GAP, gap_told(measured, name, self._gap_max), measured)


def kl_to_reference(models: Models, arrays: BatchArrays) -> npt.NDArray[np.float64]:
    """The KL of each response token, float64 (sum R,), from the sampler to the reference; 0 where untrained.

    The options must have a KL coefficient.
    """
    import torch
    import verl.trainer.ppo.core_algos as algorithms

    untyped: Any = algorithms
    sampled, reference = (
        torch.from_numpy(values.astype(np.float64))
        for values in (arrays.response_logprobs, models.reference_logprobs(arrays))
    )
    kl: npt.NDArray[np.float64] = untyped.kl_penalty(sampled, reference, models.config.kl_reward_type).numpy()
    return np.where(arrays.response_mask == 1, kl, 0.0)


def _there(critic: VerlModel | None) -> VerlModel:
    assert critic is not None  # noqa: S101  # the plan has its passes where there is one
    return critic


def gap_told(measured: Mapping[str, float], name: str, bound: float) -> str:
    """A gap of log-probabilities in words."""
    return (
        f"the log-probabilities of actor and model server differ by {measured['logprob_diff_max']:.2g} at most and "
        f"{measured['logprob_diff_mean']:.2g} on average, on tokens of the current version; {name} may be {bound:g}"
    )


def _not_finite(arrays: BatchArrays) -> str:
    """The likeliest cause of a gradient that is not finite, in words."""
    largest = float(np.abs(arrays.advantages).max(initial=0.0))
    return f"the gradient is not finite; the largest advantage of a token is {largest:.3g}"


def _mean(outputs: list[dict[str, float]]) -> dict[str, float]:
    names = {name: None for output in outputs for name in output}
    return {name: float(np.mean([output[name] for output in outputs if name in output])) for name in names}
