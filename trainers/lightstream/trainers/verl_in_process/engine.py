"""verl's TrainingWorker in this process: update on a batch, save, and load to the bit."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..batch import BatchArrays
from . import state
from .advantage import row_advantages
from .config import VerlConfig
from .loss import ComparingLoss
from .runtime import choose_device, join_process_group, load_verl, worker_environment
from .tensors import select_mini_batches, to_tensordict

__all__ = ["VerlEngine"]

_LEFT_OUT = ("perf/", "mfu")
"""Metrics of verl that say nothing here."""


class VerlEngine:
    """One model with its optimiser.

    Args:
        config: see :class:`VerlConfig`.
        folder: a checkpoint of this engine, or a folder with nothing but a model: then the optimiser starts afresh.
    """

    def __init__(self, config: VerlConfig, folder: Path) -> None:
        import torch

        self._config = config
        self.device = choose_device(config.device)
        if config.threads is not None:
            torch.set_num_threads(config.threads)
        load_verl(self.device)
        join_process_group(self.device)
        with worker_environment():
            self._worker = _new_worker(config, folder)
        self._loss = ComparingLoss(_actor_config(config))
        self._worker.set_loss_fn(self._loss)
        self._folder = folder
        state.load(folder, self._worker.engine)

    @property
    def module(self) -> Any:
        """The model, as verl wraps it."""
        return self._worker.engine.module

    def update(
        self, arrays: BatchArrays, *, compared: npt.NDArray[np.bool_] | None = None, seed: int = 0
    ) -> dict[str, float]:
        """One step of the algorithm on a batch of at least one row.

        Args:
            arrays: N rows.
            compared: bool (N,): rows whose log-probabilities should equal the actor's; by default all.
            seed: of the mini-batches.

        Returns:
            verl's metrics, and ``logprob_diff_max``.
        """
        config = self._config
        if compared is None:
            compared = np.ones(len(arrays), np.bool_)
        advantages = row_advantages(arrays, config.advantage)
        batch = to_tensordict(arrays, advantages, compared, temperature=config.temperature)
        longest = int((arrays.prompt_lengths + arrays.response_lengths).max())
        parts = [
            part
            for epoch in range(config.epochs_per_step)
            for part in select_mini_batches(len(arrays), config.mini_batches_per_step, seed * 1000 + epoch)
        ]
        self._loss.difference_max = math.nan
        self._loss.comparing = len(parts) == 1
        if not self._loss.comparing:
            self._compare(batch, longest)
        outputs = [self._update_once(batch, part, longest, part is parts[-1]) for part in parts]
        self._loss.comparing = False
        return _mean(outputs) | {
            "logprob_diff_max": self._loss.difference_max,
            "advantage/abs_mean": float(np.abs(advantages).mean()),
        }

    def save(self, folder: Path) -> None:
        """Write model, tokenizer, optimiser and random state into an empty folder."""
        state.save(folder, self._worker.engine, static_files_from=self._folder)

    def saved_in(self, folder: Path) -> None:
        """The finished name of what :meth:`save` wrote; its unchanging files are shared with the next."""
        self._folder = folder

    def _update_once(self, batch: Any, part: list[int], longest: int, is_last: bool) -> dict[str, float]:
        from verl.utils import tensordict_utils

        whole = part == list(range(len(batch)))
        rows = tensordict_utils.index_select_tensor_dict(batch, part) if not whole else batch.clone(recurse=False)
        tensordict_utils.assign_non_tensor(
            rows,
            **self._settings(rows, longest),
            global_token_num=rows["input_ids"].offsets().diff().tolist(),
            update_lr_scheduler=is_last,
        )
        output = self._worker.train_batch(rows)
        return _numbers(tensordict_utils.get(output, "metrics"))

    def _compare(self, batch: Any, longest: int) -> None:
        """One pass without gradients: with several updates, later ones start from changed weights."""
        from verl.utils import tensordict_utils

        rows = batch.clone(recurse=False)
        tensordict_utils.assign_non_tensor(rows, **self._settings(rows, longest), compute_loss=False)
        output = self._worker.infer_batch(rows)
        self._loss.compare(output["log_probs"].to("cpu"), batch)

    def _settings(self, rows: Any, longest: int) -> dict[str, Any]:
        count = len(rows)
        return {
            "calculate_entropy": self._config.entropy_coefficient != 0.0,
            "global_batch_size": count,
            "max_token_len_per_gpu": max(self._config.tokens_per_micro_batch, longest),
            # Where all rows fit at once, verl need not balance them.
            "use_dynamic_bsz": count * longest > self._config.tokens_per_micro_batch,
            "micro_batch_size_per_gpu": count,
        }


def _new_worker(config: VerlConfig, folder: Path) -> Any:
    from transformers.utils import logging as transformers_logging
    from verl.trainer.config import CheckpointConfig
    from verl.workers.config import FSDPEngineConfig, FSDPOptimizerConfig, HFModelConfig, TrainingWorkerConfig
    from verl.workers.engine_workers import TrainingWorker

    untyped_logging: Any = transformers_logging
    untyped_logging.disable_progress_bar()
    precision = {"float32": "fp32", "bfloat16": "bf16"}[config.dtype]
    worker = TrainingWorker(
        TrainingWorkerConfig(
            model_type="language_model",
            model_config=HFModelConfig(
                path=str(folder),
                # Packing all rows into one needs flash-attn; without it attention would be quadratic in the batch.
                use_remove_padding=False,
                enable_gradient_checkpointing=config.gradient_checkpointing,
                override_config={"attn_implementation": "sdpa"},
            ),
            engine_config=FSDPEngineConfig(
                strategy="fsdp2",
                model_dtype="fp32",
                mixed_precision={"param_dtype": precision, "reduce_dtype": "fp32", "buffer_dtype": "fp32"},
                reshard_after_forward=False,  # one shard: nothing to give back
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
                total_training_steps=max(1, config.steps),
                override_optimizer_config={"fused": True},  # one kernel instead of ten small ones a parameter
            ),
            checkpoint_config=CheckpointConfig(),
        )
    )
    worker.reset()
    return worker


def _actor_config(config: VerlConfig) -> Any:
    from verl.workers.config import FSDPActorConfig

    return FSDPActorConfig(
        strategy="fsdp2",
        rollout_n=config.rollouts_per_task,
        use_dynamic_bsz=True,
        clip_ratio=config.clip_ratio_high,
        clip_ratio_low=config.clip_ratio_low,
        clip_ratio_high=config.clip_ratio_high,
        entropy_coeff=config.entropy_coefficient,
        loss_agg_mode=config.loss_aggregation,
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
