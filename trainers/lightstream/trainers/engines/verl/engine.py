"""verl's TrainingWorker in this process: update on a batch, save, and load to the bit."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lightstream.schemas.errors import TrainingError

from ...loop.protocols import NothingLearned
from ...rollouts.batch import BatchArrays, Exclusion, token_weights, tokens_distinct
from . import state
from .config import GAP_MEASURES, VerlConfig
from .correction import correct
from .critic import RETURNS, VALUES, Estimates, WeightedValueLoss, estimate, rewards_of_tokens
from .images import ImageReader, RowImages, image_reader, positions_of
from .loss import WeightedPolicyLoss
from .model import PRECISIONS, Says, VerlModel, new_worker, schedule_at
from .packing import keeps_rows_apart
from .runtime import choose_device, join_process_group, load_verl, worker_environment
from .shards import Shard, with_idle_row
from .tensors import REFERENCE, Seen, micro_batches, select_mini_batches, to_tensordict

__all__ = ["VerlEngine", "actor_config", "folder_of_reference", "gap_told"]

NO_DUAL_CLIP = 1e30
"""A bound that no ratio comes to: verl lets it not be switched off, and infinity times an advantage of 0 is NaN."""


class VerlEngine:
    """One model with its optimiser.

    Args:
        config: see :class:`VerlConfig`.
        folder: a checkpoint of this engine, or a folder with nothing but a model: then the optimiser starts afresh.
        shard: which of the processes that hold the model this is; by default it is the only one.
        first: the run's first weights, which are the reference unless the options name another, and the model that an
            adapter (LoRA) belongs to; ``None``: ``folder``.
        packs: compute rows one after another instead of padded to one length; ``None``: where there is a kernel for it,
            on a GPU in bfloat16. A model that looks at images, or lets packed rows see each other (recurrent and
            convolution layers do), computes them padded.

    Attributes:
        images: how the model reads images; ``None``: it takes none.
    """

    def __init__(
        self,
        config: VerlConfig,
        folder: Path,
        shard: Shard | None = None,
        *,
        first: Path | None = None,
        packs: bool | None = None,
    ) -> None:
        import torch

        self._config = config
        self._shard = shard = shard or Shard()
        self.device = choose_device(config.device)
        if config.threads is not None:
            torch.set_num_threads(config.threads)
        self.images = image_reader(first or folder)
        may_pack = self.device == "cuda" and config.dtype == "bfloat16" if packs is None else packs
        self._packs = may_pack and self.images is None
        load_verl(self.device)
        join_process_group(self.device, shard)
        with worker_environment(shard):
            self._actor = self._new_actor(folder, first)
            self._reference = self._new_reference(folder, first)
            self._critic = self._new_critic(folder, first)
        self._loss = WeightedPolicyLoss(actor_config(config))
        self._actor.worker.set_loss_fn(self._loss)
        self._actor.before_each_step(self._check_gap_in_update)
        self._gap_max = math.inf
        self._value_loss = WeightedValueLoss(config.value_clip)
        self._folder = folder
        if config.lora_rank:
            state.begin_adapter(self._actor.engine)
        state.load(folder, self._actor.engine)
        if self._critic is not None:
            self._critic.worker.set_loss_fn(self._value_loss)
            state.load(folder / state.CRITIC_FOLDER, self._critic.engine)

    @property
    def module(self) -> Any:
        """The model, as verl wraps it."""
        return self._actor.engine.module

    def update(
        self,
        arrays: BatchArrays,
        *,
        policy_version: int | None = None,
        seed: Sequence[int] = (0,),
        policy: str = "",
        step: int | None = None,
        gap_max: float = math.inf,
    ) -> dict[str, float]:
        """One step of the algorithm on a batch of at least one row.

        Rows without an advantage are not computed, unless the entropy is part of the loss; they count all the same.
        With ``gae``, the advantages are made here, and the critic learns once the actor has. A mini-batch whose
        gradient is not finite changes nothing.

        Args:
            arrays: N rows.
            policy_version: tokens of this version should have the actor's log-probabilities; ``None``: all of them.
            seed: numbers that the order of mini-batches, and dropout, follow from.
            policy: there is one alone here; see :class:`.policies_engine.PoliciesEngine`.
            step, gap_max: see :class:`~lightstream.trainers.loop.protocols.Engine`.

        Returns:
            Of the loss, see :meth:`WeightedPolicyLoss.metrics`; ``grad_norm`` and ``lr``; ``rows/computed``,
            ``tokens/computed``, ``tokens/padded`` and ``tokens/distinct`` (of one pass over the batch; see
            :func:`~lightstream.trainers.rollouts.batch.tokens_distinct`). Of a critic: ``critic/vf_loss``,
            ``critic/vf_clipfrac``, ``critic/grad_norm``, ``critic/lr``, and those of :class:`Estimates`. While it
            warms up, of the actor ``logprob_…`` alone. ``updates/not_finite``: how many mini-batches changed nothing.

        Raises:
            NothingLearned: the gap is too large, or no mini-batch had a finite gradient. All is as before.
        """
        import torch

        config = self._config
        for model in (self._actor, self._critic):
            if step is not None and model is not None:
                schedule_at(model.engine, step - 1)
        self._gap_max = gap_max
        torch.manual_seed(int(np.random.default_rng(list(seed)).integers(2**63)))
        trained = arrays.response_mask == 1
        compared = trained if policy_version is None else trained & (arrays.policy_versions == policy_version)
        computed = set(range(len(arrays)) if config.trains_every_row else arrays.rows_with_signal.tolist())
        count = min(config.mini_batches_per_step, len(arrays))
        self._loss.start_step()
        factors, metrics = np.ones(len(trained)), self._cost(arrays, sorted(computed))
        kl = self.kl_to_reference(arrays) if config.has_critic and config.kl_reward_coefficient else None
        if config.correction is not None and computed:
            proximal = self._logprobs(arrays, sorted(computed), compared=compared)
            self._check_gap()
            corrected = correct(arrays, proximal, sorted(computed), config.correction)
            arrays, factors, metrics = corrected.arrays, corrected.factors, metrics | corrected.metrics
        weights = token_weights(arrays, config.normalisation, constant_tokens=config.response_tokens_max or 1) * count
        parts = [
            rows
            for epoch in range(config.epochs_per_step)
            for part in select_mini_batches(len(arrays), count, (*seed, epoch))
            if (rows := sorted(computed.intersection(part)))
        ]
        if self._critic is None:
            return metrics | self._update_actor(arrays, compared, weights * factors, parts, sorted(computed))
        actor_waits = self._critic.engine.lr_scheduler.last_epoch < config.critic_warmup_steps
        estimates = self._estimates(self._critic, arrays, kl)
        arrays, metrics = estimates.arrays, metrics | estimates.metrics
        if actor_waits:
            metrics |= self._compared(arrays, compared)
        else:
            metrics |= self._update_actor(arrays, compared, weights * factors, parts, sorted(computed))
        return metrics | self._update_critic(self._critic, estimates, weights, parts)

    def kl_to_reference(self, arrays: BatchArrays) -> npt.NDArray[np.float64]:
        """The KL of each response token, float64 (sum R,), from what sampled it to the reference; 0 where untrained.

        The options must have a KL coefficient.
        """
        import torch
        import verl.trainer.ppo.core_algos as algorithms

        untyped: Any = algorithms
        sampled, reference = (
            torch.from_numpy(values.astype(np.float64))
            for values in (arrays.response_logprobs, self._reference_logprobs(arrays))
        )
        kl: npt.NDArray[np.float64] = untyped.kl_penalty(sampled, reference, self._config.kl_reward_type).numpy()
        return np.where(arrays.response_mask == 1, kl, 0.0)

    def save_weights(self, folder: Path) -> None:
        """Write model and tokenizer into an empty folder, in the type of the forward pass."""
        state.save_weights(
            folder, self._actor.engine, static_files_from=self._folder, dtype=self._config.dtype, rank=self._shard.rank
        )

    def save(self, folder: Path) -> None:
        """Write model, tokenizer, optimiser and random state into an empty folder; a critic into one within it."""
        rank = self._shard.rank
        state.save(folder, self._actor.engine, static_files_from=self._folder, rank=rank)
        if self._critic is not None:
            if rank == 0:
                (folder / state.CRITIC_FOLDER).mkdir()
            state.save(folder / state.CRITIC_FOLDER, self._critic.engine, static_files_from=None, rank=rank)

    def saved_in(self, folder: Path) -> None:
        """The finished name of what :meth:`save` wrote; its unchanging files are shared with the next."""
        self._folder = folder

    def close(self) -> None:
        """Nothing was started."""

    def _new_actor(self, folder: Path, first: Path | None) -> VerlModel:
        model = (first or folder) if self._config.lora_rank else folder
        return self._new_model(self._config, model)

    def _new_reference(self, folder: Path, first: Path | None) -> VerlModel | None:
        """The reference, unless there is none, or it is the actor less its adapter."""
        config = self._config
        if not config.compares_with_reference or (config.lora_rank and config.reference is None):
            return None
        weights = folder_of_reference(config, first or folder)
        return self._new_model(replace(config, lora_rank=0), weights, stored=PRECISIONS[config.dtype])

    def _new_critic(self, folder: Path, first: Path | None) -> VerlModel | None:
        """The critic of a checkpoint, or a new one; ``None`` where advantages are made without."""
        config = self._config
        if not config.has_critic:
            return None
        saved = folder / state.CRITIC_FOLDER
        begun = Path(config.critic_model or first or folder).expanduser()
        critic = self._new_model(
            replace(config, lora_rank=0, learning_rate=config.critic_learning_rate),
            saved if saved.is_dir() else begun,
            says="values",
            described_in=begun,
        )
        ours, its = (model.engine.model_config.hf_config.vocab_size for model in (self._actor, critic))
        if its != ours:
            raise TrainingError(
                f"the critic {str(begun)!r} has a vocabulary of {its} tokens, and the model one of {ours}.",
                next_step="Name a model with the same tokenizer: VERL(critic_model=...).",
            )
        return critic

    def _new_model(
        self,
        config: VerlConfig,
        folder: Path,
        *,
        stored: str = "fp32",
        says: Says = "log_probs",
        described_in: Path | None = None,
    ) -> VerlModel:
        if (image_reader(described_in or folder) is None) is not (self.images is None):
            raise TrainingError(
                f"of the model and {str(described_in or folder)!r}, one looks at images and the other does not.",
                next_step="Name models of one kind.",
            )
        packs = self._packs
        new = partial(
            new_worker,
            config,
            folder,
            processes=self._shard.count,
            stored=stored,
            says=says,
            described_in=described_in,
        )
        worker = new(packs=packs)
        if packs and not keeps_rows_apart(worker.engine.module, dtype=config.dtype):
            packs, worker = False, new(packs=False)
        return VerlModel(worker, config, self._shard, packs=packs, says=says)

    def _cost(self, arrays: BatchArrays, computed: list[int]) -> dict[str, float]:
        lengths = arrays.lengths[computed].tolist()
        parts = micro_batches(lengths, self._config.tokens_per_micro_batch, packed=self._actor.packs)
        padded = sum(len(part) * max(lengths[row] for row in part) for part in parts)
        return {
            "rows/computed": float(len(computed)),
            "tokens/computed": float(sum(lengths)),
            "tokens/distinct": float(tokens_distinct(arrays, computed)),
            "tokens/padded": float(sum(lengths) if self._actor.packs else padded),
        }

    def _batch(
        self,
        arrays: BatchArrays,
        compared: npt.NDArray[np.bool_] | None = None,
        weights: npt.NDArray[np.float64] | None = None,
        further: Mapping[str, npt.NDArray[np.float32]] | None = None,
    ) -> Any:
        """The batch for verl; where there are several processes, with an idle row at its end."""
        tokens = len(arrays.response_mask)
        compared = np.zeros(tokens, bool) if compared is None else compared
        weights = np.zeros(tokens) if weights is None else weights
        further = further or {}
        if self._shard.count > 1:
            arrays = with_idle_row(arrays)
            # Gradients are averaged over the processes, each of which has its part of the sum.
            weights = np.append(weights * self._shard.count, 0.0)
            compared = np.append(compared, False)
            further = {name: np.append(values, np.float32(0)) for name, values in further.items()}
        seen = None if self.images is None else self._seen(arrays, self.images)
        return to_tensordict(arrays, weights, compared, further, seen, temperature=self._config.temperature)

    def _seen(self, arrays: BatchArrays, reader: ImageReader) -> Seen:
        positions = positions_of(arrays, reader, self._actor.engine.module)
        return Seen(positions, [RowImages(reader, shown, self.device) if shown else None for shown in arrays.images])

    def _estimates(self, critic: VerlModel, arrays: BatchArrays, kl: npt.NDArray[np.float64] | None) -> Estimates:
        """The advantages of a batch whose ``advantages`` are rewards; ``kl`` is of each response token."""
        config = self._config
        values = critic.infer(self._batch(arrays), arrays, list(range(len(arrays)))).of_tokens(arrays, self._shard)
        rewards = rewards_of_tokens(arrays, config.advantage_per)
        trained = arrays.response_mask == 1
        metrics: dict[str, float] = {}
        if kl is not None:
            rewards -= config.kl_reward_coefficient * kl
            metrics["actor/reward_kl_penalty"] = float(kl[trained].mean()) if trained.any() else 0.0
        estimates = estimate(arrays, rewards, values, gamma=config.gamma, lam=config.lam)
        return replace(estimates, metrics=estimates.metrics | metrics)

    def _update_critic(
        self, critic: VerlModel, estimates: Estimates, weights: npt.NDArray[np.float64], parts: list[list[int]]
    ) -> dict[str, float]:
        self._value_loss.start_step()
        arrays = estimates.arrays
        batch = self._batch(arrays, weights=weights, further={VALUES: estimates.values, RETURNS: estimates.returns})
        found = _mean([critic.update(batch, arrays, part, is_last=part is parts[-1]) for part in parts])
        return {
            "critic/vf_loss": found["loss"],
            "critic/vf_clipfrac": self._value_loss.clipped(self._shard),
            "critic/grad_norm": found["grad_norm"],
            "critic/lr": found["lr"],
        }

    def _update_actor(
        self,
        arrays: BatchArrays,
        compared: npt.NDArray[np.bool_],
        weights: npt.NDArray[np.float64],
        parts: list[list[int]],
        computed: list[int],
    ) -> dict[str, float]:
        config = self._config
        reference = {REFERENCE: self._reference_logprobs(arrays)} if config.kl_loss_coefficient else None
        batch = self._batch(arrays, compared, weights, reference)
        if len(parts) > 1 and config.correction is None:
            outputs = self._actor.infer(batch, arrays, computed)
            self._loss.compare(outputs.table, outputs.rows)
            self._check_gap()
        self._loss.comparing = len(parts) == 1 and config.correction is None
        try:
            found = [self._actor.update(batch, arrays, part, is_last=part is parts[-1]) for part in parts]
        finally:
            self._loss.comparing = False
        self._loss.add_up(self._shard)
        metrics, not_finite = self._loss.metrics(), sum(not math.isfinite(f["grad_norm"]) for f in found)
        if found and not_finite == len(found):
            raise NothingLearned(Exclusion.NOT_FINITE, _not_finite(arrays), metrics)
        return _mean(found) | metrics | ({"updates/not_finite": float(not_finite)} if not_finite else {})

    def _check_gap_in_update(self) -> None:
        """Refuse the step of the optimiser that an update is about to make, if it compared with what sampled."""
        if self._loss.comparing:
            self._check_gap()

    def _check_gap(self) -> None:
        """Refuse to learn where actor and sampler are too far apart."""
        measured = self._loss.differences(self._shard)
        name = GAP_MEASURES[self._config.dtype]
        if measured[name] > self._gap_max:
            raise NothingLearned(Exclusion.LOGPROB_GAP, gap_told(measured, name, self._gap_max), measured)

    def _compared(self, arrays: BatchArrays, compared: npt.NDArray[np.bool_]) -> dict[str, float]:
        """How far the actor is from what sampled the tokens, where it does not learn."""
        if self._config.correction is None:
            outputs = self._actor.infer(self._batch(arrays, compared), arrays, list(range(len(arrays))))
            self._loss.compare(outputs.table, outputs.rows)
            self._check_gap()
        self._loss.add_up(self._shard)
        return {name: value for name, value in self._loss.metrics().items() if name.startswith("logprob_")}

    def _logprobs(
        self, arrays: BatchArrays, rows: list[int], *, compared: npt.NDArray[np.bool_]
    ) -> npt.NDArray[np.float32]:
        """The actor's log-probabilities of the response tokens of some rows, else those as sampled; compares some."""
        outputs = self._actor.infer(self._batch(arrays, compared), arrays, rows)
        self._loss.compare(outputs.table, outputs.rows)
        values, chosen = outputs.of_tokens(arrays, self._shard), np.isin(arrays.row_of_token, rows)
        return np.where(chosen, values, arrays.response_logprobs).astype(np.float32)

    def _reference_logprobs(self, arrays: BatchArrays) -> npt.NDArray[np.float32]:
        """Of the reference, of each response token: of another model, or of the actor less its adapter."""
        model = self._reference or self._actor
        with state.without_adapter(model.engine) if model is self._actor else nullcontext():
            outputs = model.infer(self._batch(arrays), arrays, list(range(len(arrays))))
        return outputs.of_tokens(arrays, self._shard).astype(np.float32)


def folder_of_reference(config: VerlConfig, first: Path) -> Path:
    """The folder of the reference policy, where the run's first weights are in ``first``.

    Raises:
        TrainingError: there is none.
    """
    folder = first if config.reference is None else Path(config.reference)
    if not (folder / "config.json").is_file():
        raise TrainingError(
            f"the reference policy {str(folder)!r} is not there.",
            next_step="Restore the folder, or name another checkpoint with VERL(reference=...).",
        )
    return folder


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


def actor_config(config: VerlConfig) -> Any:
    """verl's configuration of an actor."""
    from verl.workers.config import FSDPActorConfig, PolicyLossConfig

    low, high = config.clip_ratios
    return FSDPActorConfig(
        strategy="fsdp2",
        rollout_n=config.rollouts_per_task,
        use_dynamic_bsz=True,
        clip_ratio=high,
        clip_ratio_low=low,
        clip_ratio_high=high,
        clip_ratio_c=NO_DUAL_CLIP if config.dual_clip is None else config.dual_clip,
        entropy_coeff=config.entropy_coefficient,
        policy_loss=PolicyLossConfig(loss_mode=config.policy_loss),
        use_kl_loss=config.kl_loss_coefficient != 0.0,
        kl_loss_coef=config.kl_loss_coefficient,
        kl_loss_type=config.kl_loss_type,
    )


def _mean(outputs: list[dict[str, float]]) -> dict[str, float]:
    names = {name: None for output in outputs for name in output}
    return {name: float(np.mean([output[name] for output in outputs if name in output])) for name in names}
