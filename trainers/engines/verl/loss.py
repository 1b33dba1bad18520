"""verl's policy losses with a weight for each token, and a researcher's metrics of them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from .shards import Shard
from .tensors import REFERENCE


@dataclass(slots=True)
class _Sums:
    """Over the trained tokens of a step's updates."""

    tokens: float = 0.0
    loss: float = 0.0
    kl_loss: float = 0.0
    surprise: float = 0.0
    kl: float = 0.0
    ratio: float = 0.0
    ratio_max: float = 0.0
    clipped: float = 0.0
    entropy: float = 0.0


@dataclass(slots=True)
class _Differences:
    """Actor against sampler, over the compared tokens, before the step's first update."""

    tokens: float = 0.0
    absolute: float = 0.0
    absolute_max: float = 0.0
    k3: float = 0.0

    def metrics(self) -> dict[str, float]:
        """By the names of :meth:`WeightedPolicyLoss.metrics`; NaN where nothing was compared."""
        tokens = self.tokens or math.nan
        return {
            "logprob_diff_max": self.absolute_max if self.tokens else math.nan,
            "logprob_diff_mean": self.absolute / tokens,
            "logprob_k3": self.k3 / tokens,
        }


class WeightedPolicyLoss:
    """The sum over tokens of weight * one of verl's objectives (``vanilla``: PPO with dual clip, arXiv:1912.09729).

    The objective of a token depends on its own row alone, so that the sum is the same however a batch is cut into
    micro-batches. While ``comparing``, notes how far the actor is from what sampled the tokens; its log-probabilities
    are there anyway.

    Args:
        config: verl's actor configuration: the policy loss, the bounds of the ratio, and the weights of entropy and KL.
    """

    def __init__(self, config: Any) -> None:
        self._config = config
        self.comparing = False
        self._sums = _Sums()
        self._differences = _Differences()

    def start_step(self) -> None:
        """Forget the sums of earlier steps."""
        self._sums, self._differences = _Sums(), _Differences()

    def __call__(self, model_output: Any, data: Any, dp_group: Any = None) -> Any:
        import verl.trainer.ppo.core_algos as algorithms
        from verl.workers.utils.padding import no_padding_2_padding

        log_probs = no_padding_2_padding(model_output["log_probs"], data)
        fields = _padded(data)
        if self.comparing:
            self._compare(log_probs, fields)
        untyped: Any = algorithms
        policy_loss: Any = untyped.get_policy_loss_fn(self._config.policy_loss.loss_mode)
        loss, seen = policy_loss(
            old_log_prob=fields["old_log_probs"],
            log_prob=log_probs,
            advantages=fields["advantages"],
            response_mask=fields["response_mask"].bool(),
            loss_agg_mode="token-sum",
            config=self._config,
            rollout_is_weights=fields["weights"],
        )
        self._sums.loss += float(loss.detach())
        self._sums.clipped += seen.get("actor/pg_clipfrac", 0.0) * float(fields["response_mask"].sum())
        if self._config.use_kl_loss:
            kl = untyped.kl_penalty(log_probs, fields[REFERENCE], self._config.kl_loss_type)
            kl = (kl * fields["response_mask"] * fields["weights"]).sum()
            loss = loss + self._config.kl_loss_coef * kl
            self._sums.kl_loss += float(kl.detach())
        entropy = model_output.get("entropy")
        if entropy is not None:
            entropy = no_padding_2_padding(entropy, data)
            loss = loss - self._config.entropy_coeff * (entropy * fields["weights"]).sum()
            self._sums.entropy += float((entropy.detach() * fields["response_mask"]).sum())
        self._look(log_probs, fields)
        return loss, {}

    def compare(self, log_probs: Any, data: Any) -> None:
        """Take in the actor's log-probabilities of a batch, (N, longest response)."""
        self._compare(log_probs, _padded(data))

    def add_up(self, shard: Shard) -> None:
        """Take in the sums of the other processes of the model. The loss is of all rows on each process."""
        summed, largest = shard.summed, shard.largest
        sums, differences = self._sums, self._differences
        (
            sums.tokens,
            sums.loss,
            sums.kl_loss,
            sums.surprise,
            sums.kl,
            sums.ratio,
            sums.clipped,
            sums.entropy,
            differences.tokens,
            differences.absolute,
            differences.k3,
        ) = summed(
            np.array(
                [
                    sums.tokens,
                    sums.loss / shard.count,
                    sums.kl_loss / shard.count,
                    sums.surprise,
                    sums.kl,
                    sums.ratio,
                    sums.clipped,
                    sums.entropy,
                    differences.tokens,
                    differences.absolute,
                    differences.k3,
                ]
            )
        ).tolist()
        maxima = np.array([sums.ratio_max, differences.absolute_max])
        sums.ratio_max, differences.absolute_max = largest(maxima).tolist()

    def differences(self, shard: Shard) -> dict[str, float]:
        """``logprob_…`` of :meth:`metrics` over all processes, before :meth:`add_up`; the sums stay."""
        of_shard = self._differences
        sums = np.array([of_shard.tokens, of_shard.absolute, of_shard.k3])
        tokens, absolute, k3 = shard.summed(sums).tolist()
        (largest,) = shard.largest(np.array([of_shard.absolute_max])).tolist()
        return _Differences(tokens, absolute, largest, k3).metrics()

    def metrics(self) -> dict[str, float]:
        """Of all updates since :meth:`start_step`; means are over trained tokens, each counted once per update.

        ``actor/entropy`` is exact where the entropy is part of the loss, else the mean surprise of the sampled tokens,
        whose expectation is the entropy. ``actor/kl_loss`` is the KL to the reference, weighed as the loss is.
        ``logprob_diff_max``, ``logprob_diff_mean`` and ``logprob_k3`` (the estimator of KL(sampler, actor),
        http://joschu.net/blog/kl-approx.html) compare actor and sampler; NaN where nothing was compared.
        """
        sums, differences = self._sums, self._differences
        tokens = sums.tokens or math.nan
        kl_loss = {"actor/kl_loss": sums.kl_loss} if self._config.use_kl_loss else {}
        return (
            kl_loss
            | {
                "actor/pg_loss": sums.loss,
                "actor/entropy": (sums.entropy or sums.surprise) / tokens,
                "actor/ppo_kl": sums.kl / tokens,
                "actor/pg_clipfrac": sums.clipped / tokens,
                "actor/ratio_mean": sums.ratio / tokens,
                "actor/ratio_max": sums.ratio_max if sums.tokens else math.nan,
            }
            | differences.metrics()
        )

    def _compare(self, log_probs: Any, fields: dict[str, Any]) -> None:
        import torch

        with torch.no_grad():
            mask = fields["compared"].bool()
            difference = (log_probs.float() - fields["old_log_probs"])[mask]
            if difference.numel():
                seen = self._differences
                seen.tokens += difference.numel()
                seen.absolute += float(difference.abs().sum())
                seen.absolute_max = max(seen.absolute_max, float(difference.abs().max()))
                seen.k3 += float((difference.exp() - 1 - difference).sum())

    def _look(self, log_probs: Any, fields: dict[str, Any]) -> None:
        import torch

        with torch.no_grad():
            mask = fields["response_mask"].bool()
            actor = log_probs.float()[mask]
            if not actor.numel():
                return
            difference = actor - fields["old_log_probs"][mask]
            ratio = difference.clamp(-20.0, 20.0).exp()
            sums = self._sums
            sums.tokens += actor.numel()
            sums.surprise -= float(actor.sum())
            sums.kl -= float(difference.sum())
            sums.ratio += float(ratio.sum())
            sums.ratio_max = max(sums.ratio_max, float(ratio.max()))


def _padded(data: Any) -> dict[str, Any]:
    """The fields of the loss, each (N, longest response), 0 beyond a row's end."""
    names = ("response_mask", "old_log_probs", "advantages", "weights", "compared", REFERENCE)
    return {name: data[name].to_padded_tensor(0) for name in names if name in data.keys()}  # noqa: SIM118  # a TensorDict's
