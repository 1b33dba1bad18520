"""verl's TrainingWorker in this process: update on a batch, save, and load to the bit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lightstream.schemas.errors import TrainingError

from ..batch import BatchArrays, token_weights
from . import state
from .config import VerlConfig
from .correction import correct
from .loss import WeightedPolicyLoss
from .runtime import MICRO_BATCH_SIZES, choose_device, join_process_group, load_verl, worker_environment
from .shards import Shard, with_idle_row
from .tensors import micro_batches, select_mini_batches, to_tensordict

__all__ = ["VerlEngine"]

PRECISIONS = {"float32": "fp32", "bfloat16": "bf16"}

_LEFT_OUT = ("perf/", "mfu")
"""Metrics of verl that say nothing here."""


class VerlEngine:
    """One model with its optimiser.

    Args:
        config: see :class:`VerlConfig`.
        folder: a checkpoint of this engine, or a folder with nothing but a model: then the optimiser starts afresh.
        shard: which of the processes that hold the model this is; by default it is the only one.
        first: the run's first weights, which are the reference unless the options name another, and the model that an
            adapter (LoRA) belongs to; ``None``: ``folder``.
        packs: compute rows one after another instead of padded to one length; ``None``: where there is a kernel for it,
            on a GPU in bfloat16.
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
        self._packs = self.device == "cuda" and config.dtype == "bfloat16" if packs is None else packs
        load_verl(self.device)
        join_process_group(self.device, shard)
        with worker_environment(shard):
            model = (first or folder) if config.lora_rank else folder
            self._worker = _new_worker(config, model, packs=self._packs, processes=shard.count)
            self._reference: Any = None
            if config.compares_with_reference and not (config.lora_rank and config.reference is None):
                weights = _folder_of_reference(config, first or folder)
                self._reference = _new_worker(
                    replace(config, lora_rank=0),
                    weights,
                    packs=self._packs,
                    processes=shard.count,
                    stored=PRECISIONS[config.dtype],
                )
        self._loss = WeightedPolicyLoss(_actor_config(config))
        self._worker.set_loss_fn(self._loss)
        self._folder = folder
        if config.lora_rank:
            state.begin_adapter(self._worker.engine)
        state.load(folder, self._worker.engine)

    @property
    def module(self) -> Any:
        """The model, as verl wraps it."""
        return self._worker.engine.module

    def update(
        self, arrays: BatchArrays, *, policy_version: int | None = None, seed: Sequence[int] = (0,)
    ) -> dict[str, float]:
        """One step of the algorithm on a batch of at least one row.

        Rows without an advantage are not computed, unless the entropy is part of the loss; they count all the same.

        Args:
            arrays: N rows.
            policy_version: tokens of this version should have the actor's log-probabilities; ``None``: all of them.
            seed: numbers that the order of mini-batches, and dropout, follow from.

        Returns:
            Of the loss, see :meth:`WeightedPolicyLoss.metrics`; ``grad_norm`` and ``lr``; ``rows/computed``,
            ``tokens/computed`` and ``tokens/padded`` (of one pass over the batch).
        """
        import torch

        config = self._config
        torch.manual_seed(int(np.random.default_rng(list(seed)).integers(2**63)))
        trained = arrays.response_mask == 1
        compared = trained if policy_version is None else trained & (arrays.policy_versions == policy_version)
        computed = set(range(len(arrays)) if config.trains_every_row else arrays.rows_with_signal.tolist())
        count = min(config.mini_batches_per_step, len(arrays))
        self._loss.start_step()
        factors, correction_metrics = np.ones(len(trained)), dict[str, float]()
        if config.correction is not None and computed:
            proximal = self._logprobs(arrays, sorted(computed), compared=compared)
            corrected = correct(arrays, proximal, sorted(computed), config.correction)
            arrays, factors, correction_metrics = corrected.arrays, corrected.factors, corrected.metrics
        weights = token_weights(arrays, config.normalisation, constant_tokens=config.response_tokens_max or 1)
        reference = self._reference_logprobs(arrays) if config.kl_loss_coefficient else None
        batch = self._batch(arrays, compared, weights * factors * count, reference)
        parts = [
            rows
            for epoch in range(config.epochs_per_step)
            for part in select_mini_batches(len(arrays), count, (*seed, epoch))
            if (rows := sorted(computed.intersection(part)))
        ]
        metrics = self._cost(arrays, sorted(computed)) | correction_metrics
        self._loss.comparing = len(parts) == 1 and config.correction is None
        if len(parts) > 1 and config.correction is None:
            self._loss.compare(*self._infer(batch, arrays, sorted(computed))[:2])
        outputs = [self._update_once(batch, arrays, part, part is parts[-1]) for part in parts]
        self._loss.comparing = False
        self._loss.add_up(self._shard)
        return metrics | _mean(outputs) | self._loss.metrics()

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

    def _reference_logprobs(self, arrays: BatchArrays) -> npt.NDArray[np.float32]:
        return self._logprobs(arrays, list(range(len(arrays))), of_reference=True)

    def save_weights(self, folder: Path) -> None:
        """Write model and tokenizer into an empty folder, in the type of the forward pass."""
        state.save_weights(
            folder, self._worker.engine, static_files_from=self._folder, dtype=self._config.dtype, rank=self._shard.rank
        )

    def save(self, folder: Path) -> None:
        """Write model, tokenizer, optimiser and random state into an empty folder."""
        state.save(folder, self._worker.engine, static_files_from=self._folder, rank=self._shard.rank)

    def saved_in(self, folder: Path) -> None:
        """The finished name of what :meth:`save` wrote; its unchanging files are shared with the next."""
        self._folder = folder

    def close(self) -> None:
        """Nothing was started."""

    def _cost(self, arrays: BatchArrays, computed: list[int]) -> dict[str, float]:
        lengths = arrays.lengths[computed].tolist()
        parts = micro_batches(lengths, self._config.tokens_per_micro_batch, packed=self._packs)
        padded = sum(len(part) * max(lengths[row] for row in part) for part in parts)
        return {
            "rows/computed": float(len(computed)),
            "tokens/computed": float(sum(lengths)),
            "tokens/padded": float(sum(lengths) if self._packs else padded),
        }

    def _batch(
        self,
        arrays: BatchArrays,
        compared: npt.NDArray[np.bool_],
        weights: npt.NDArray[np.float64] | None = None,
        reference: npt.NDArray[np.float32] | None = None,
    ) -> Any:
        """The batch for verl; where there are several processes, with an idle row at its end."""
        weights = np.zeros(len(compared)) if weights is None else weights
        if self._shard.count > 1:
            arrays = with_idle_row(arrays)
            # Gradients are averaged over the processes, each of which has its part of the sum.
            weights = np.append(weights * self._shard.count, 0.0)
            compared = np.append(compared, False)
            reference = None if reference is None else np.append(reference, np.float32(0))
        return to_tensordict(arrays, weights, compared, reference, temperature=self._config.temperature)

    def _own_rows(self, batch: Any, arrays: BatchArrays, part: list[int]) -> tuple[Any, list[int]]:
        """Those of some rows that this process computes, with what verl has to know; and their numbers."""
        from verl.utils import tensordict_utils

        own, sizes = part, None
        if self._shard.count > 1:
            lengths: list[int] = arrays.lengths.tolist()
            limit = self._config.tokens_per_micro_batch
            parts = self._shard.micro_batches(lengths, part, limit, packed=self._packs)
            own, sizes = [row for rows in parts for row in rows], [len(rows) for rows in parts]
        rows = _rows_of(batch, own)
        settings = self._settings(rows) | ({} if sizes is None else {MICRO_BATCH_SIZES: tuple(sizes)})
        tensordict_utils.assign_non_tensor(rows, **settings)
        return rows, own

    def _update_once(self, batch: Any, arrays: BatchArrays, part: list[int], is_last: bool) -> dict[str, float]:
        from verl.utils import tensordict_utils

        rows, _ = self._own_rows(batch, arrays, part)
        tensordict_utils.assign_non_tensor(
            rows,
            global_token_num=rows["input_ids"].offsets().diff().tolist(),
            update_lr_scheduler=is_last,
        )
        output = self._worker.train_batch(rows)
        return _numbers(tensordict_utils.get(output, "metrics"))

    def _infer(
        self, batch: Any, arrays: BatchArrays, part: list[int], *, of_reference: bool = False
    ) -> tuple[Any, Any, list[int]]:
        """One pass without gradients, of the actor, or of the reference: another model, or the actor less its adapter.

        Returns:
            The log-probabilities, (n, longest response), of the rows that this process computes; these rows; and their
            numbers.
        """
        from verl.utils import tensordict_utils
        from verl.workers.utils.padding import no_padding_2_padding

        rows, own = self._own_rows(batch, arrays, part)
        tensordict_utils.assign_non_tensor(rows, compute_loss=False)
        if of_reference and self._reference is None:
            with state.without_adapter(self._worker.engine):
                output = self._worker.infer_batch(rows)
        else:
            output = (self._reference if of_reference else self._worker).infer_batch(rows)
        return no_padding_2_padding(output["log_probs"].to("cpu"), rows), rows, own

    def _logprobs(
        self,
        arrays: BatchArrays,
        rows: list[int],
        *,
        compared: npt.NDArray[np.bool_] | None = None,
        of_reference: bool = False,
    ) -> npt.NDArray[np.float32]:
        """The log-probabilities of the response tokens of some rows, of the others as sampled; compares some."""
        batch = self._batch(arrays, np.zeros(len(arrays.response_mask), bool) if compared is None else compared)
        table, computed, own = self._infer(batch, arrays, rows, of_reference=of_reference)
        if compared is not None:
            self._loss.compare(table, computed)
        values = np.zeros(len(arrays.response_mask))
        starts = np.cumsum(arrays.response_lengths) - arrays.response_lengths
        for line, row in zip(table.float().numpy(), own, strict=True):
            if row < len(arrays):
                length = arrays.response_lengths[row]
                values[starts[row] : starts[row] + length] = line[:length]
        values = self._shard.summed(values)
        logprobs = arrays.response_logprobs.copy()
        chosen = np.isin(arrays.row_of_token, rows)
        logprobs[chosen] = values[chosen]
        return logprobs

    def _settings(self, rows: Any) -> dict[str, Any]:
        return {
            "calculate_entropy": self._config.entropy_coefficient != 0.0,
            "global_batch_size": len(rows),
            "max_token_len_per_gpu": self._config.tokens_per_micro_batch,
            "use_dynamic_bsz": True,
            "use_remove_padding": self._packs,
        }


def _rows_of(batch: Any, part: list[int]) -> Any:
    from verl.utils import tensordict_utils

    if part == list(range(len(batch))):
        return batch.clone(recurse=False)
    return tensordict_utils.index_select_tensor_dict(batch, part)


def _folder_of_reference(config: VerlConfig, first: Path) -> Path:
    folder = first if config.reference is None else Path(config.reference)
    if not (folder / "config.json").is_file():
        raise TrainingError(
            f"the reference policy {str(folder)!r} is not there.",
            next_step="Restore the folder, or name another checkpoint with VERL(reference=...).",
        )
    return folder


def _new_worker(config: VerlConfig, folder: Path, *, packs: bool, processes: int, stored: str = "fp32") -> Any:
    from transformers.utils import logging as transformers_logging
    from verl.trainer.config import CheckpointConfig
    from verl.workers.config import FSDPEngineConfig, FSDPOptimizerConfig, HFModelConfig, TrainingWorkerConfig
    from verl.workers.engine_workers import TrainingWorker

    from .packed_attention import PACKED_ATTENTION, add_packed_attention

    add_packed_attention()
    untyped_logging: Any = transformers_logging
    untyped_logging.disable_progress_bar()
    precision = PRECISIONS[config.dtype]
    worker = TrainingWorker(
        TrainingWorkerConfig(
            model_type="language_model",
            model_config=HFModelConfig(
                path=str(folder),
                use_remove_padding=packs,
                enable_gradient_checkpointing=config.gradient_checkpointing,
                override_config={"attn_implementation": PACKED_ATTENTION if packs else "sdpa"},
                lora_rank=config.lora_rank,
                lora_alpha=config.lora_alpha,
                target_modules=config.lora_target_modules,
            ),
            engine_config=FSDPEngineConfig(
                strategy="fsdp2",
                model_dtype=stored,
                mixed_precision={"param_dtype": precision, "reduce_dtype": "fp32", "buffer_dtype": "fp32"},
                reshard_after_forward=processes > 1,  # one shard: nothing to give back
                use_torch_compile=False,
                use_dynamic_bsz=True,
                max_token_len_per_gpu=config.tokens_per_micro_batch,
                infer_max_token_len_per_gpu=config.tokens_per_micro_batch,
            ),
            optimizer_config=FSDPOptimizerConfig(
                lr=config.learning_rate,
                weight_decay=config.weight_decay,
                clip_grad=config.gradient_norm_max,
                lr_warmup_steps=config.lr_warmup_steps,
                lr_scheduler_type=config.lr_schedule,
                min_lr_ratio=config.learning_rate_min_ratio,
                total_training_steps=max(1, config.steps),
                override_optimizer_config={"fused": True},  # one kernel instead of ten small ones a parameter
            ),
            checkpoint_config=CheckpointConfig(),
        )
    )
    worker.reset()
    return worker


def _actor_config(config: VerlConfig) -> Any:
    from verl.workers.config import FSDPActorConfig, PolicyLossConfig

    return FSDPActorConfig(
        strategy="fsdp2",
        rollout_n=config.rollouts_per_task,
        use_dynamic_bsz=True,
        clip_ratio=config.clip_ratio_high,
        clip_ratio_low=config.clip_ratio_low,
        clip_ratio_high=config.clip_ratio_high,
        entropy_coeff=config.entropy_coefficient,
        policy_loss=PolicyLossConfig(loss_mode=config.policy_loss),
        use_kl_loss=config.kl_loss_coefficient != 0.0,
        kl_loss_coef=config.kl_loss_coefficient,
        kl_loss_type=config.kl_loss_type,
    )


def _numbers(metrics: dict[str, Any]) -> dict[str, float]:
    """verl's metrics as numbers: it wraps them in lists (one item a process) and in its own aggregates."""
    from verl.utils.metric import Metric

    numbers: dict[str, float] = {}
    for name, value in metrics.items():
        if name.startswith(_LEFT_OUT):
            continue
        values: list[Any] = value if isinstance(value, list) else [value]
        if values and isinstance(values[0], Metric):
            numbers[name] = float(Metric.aggregate_dp(values))
        elif values:
            numbers[name] = float(np.mean(values))
    return numbers


def _mean(outputs: list[dict[str, float]]) -> dict[str, float]:
    names = {name: None for output in outputs for name in output}
    return {name: float(np.mean([output[name] for output in outputs if name in output])) for name in names}
