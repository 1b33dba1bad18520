"""A model in verl's TrainingWorker: a pass over some rows of a batch, and an update on them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from ...rollouts.batch import BatchArrays
from ...run.model.attention import attention_of
from .config import VerlConfig
from .own_part import NotReadInPartsError, read_by_each, weight_files
from .runtime import MICRO_BATCH_ROWS_MAX, MICRO_BATCH_SIZES
from .shards import Shard

logger = logging.getLogger(__name__)

Says: TypeAlias = Literal["log_probs", "values"]

PRECISIONS = {"float32": "fp32", "bfloat16": "bf16"}

_LEFT_OUT = ("perf/", "mfu")
"""Metrics of verl that say nothing here."""


@dataclass(frozen=True, slots=True)
class Outputs:
    """The outputs of a pass without gradients, for the rows that this process computes.

    Attributes:
        table: (n, longest response): of each response token.
        rows: the rows, as verl takes them.
        numbers: int, n of them: theirs in the batch.
    """

    table: Any
    rows: Any
    numbers: list[int]

    def of_tokens(self, arrays: BatchArrays, shard: Shard) -> npt.NDArray[np.float64]:
        """Of each response token of the batch, float64 (sum R,); 0 in the rows that no process computed."""
        values = np.zeros(len(arrays.response_mask))
        starts = np.cumsum(arrays.response_lengths) - arrays.response_lengths
        for line, row in zip(self.table.float().numpy(), self.numbers, strict=True):
            if row < len(arrays):  # not the idle one
                length = arrays.response_lengths[row]
                values[starts[row] : starts[row] + length] = line[:length]
        return shard.summed(values)


class VerlModel:
    """One of an engine's models: actor, reference or critic.

    Args:
        worker: verl's, initialised.
        config: of the engine.
        shard: which of the processes that hold the model this is.
        packs: compute rows one after another instead of padded to one length.
        says: what the model has to say of each token.
    """

    def __init__(
        self,
        worker: Any,
        config: VerlConfig,
        shard: Shard,
        *,
        packs: bool,
        says: Says = "log_probs",
    ) -> None:
        self.worker = worker
        self._config = config
        self._shard = shard
        self.packs = packs
        self._says = says

    @property
    def engine(self) -> Any:
        """The engine of verl's, with module, optimiser and schedule."""
        return self.worker.engine

    def before_each_step(self, check: Callable[[], None]) -> None:
        """Have ``check`` called before each step of the optimiser; if it raises, verl forgets the gradient."""
        engine = self.engine
        step = engine.optimizer_step

        def checked_step() -> Any:
            check()
            return step()

        engine.optimizer_step = checked_step

    def update(self, batch: Any, arrays: BatchArrays, part: list[int], *, is_last: bool) -> dict[str, float]:
        """One step of the optimiser on some rows; the ``is_last`` of an update is one step of the schedule, too.

        Args:
            batch: for verl, made of ``arrays``.
            part: numbers of the rows, at least one.

        Returns:
            verl's metrics.
        """
        from verl.utils import tensordict_utils

        rows, _ = self._own_rows(batch, arrays, part)
        tensordict_utils.assign_non_tensor(
            rows,
            global_token_num=rows["input_ids"].offsets().diff().tolist(),
            update_lr_scheduler=is_last,
        )
        output = self.worker.train_batch(rows)
        return _numbers(tensordict_utils.get(output, "metrics"))

    def add_gradient(self, batch: Any, arrays: BatchArrays, part: list[int]) -> None:
        """Compute some rows, and add their gradient to the present one.

        Args:
            batch: for verl, made of ``arrays``.
            part: numbers of the rows, at least one.
        """
        from verl.utils import tensordict_utils

        rows, _ = self._own_rows(batch, arrays, part)
        tensordict_utils.assign_non_tensor(rows, global_token_num=rows["input_ids"].offsets().diff().tolist())
        self.worker.forward_backward(rows)

    def apply_gradients(self, learning_rate: float) -> float:
        """One step of the optimiser, at a rate of its own; returns the norm of the gradients, which are forgotten."""
        return float(self.worker.optimizer_step({"lr": float(learning_rate)})["grad_norm"])

    def forget_gradients(self) -> None:
        """Drop the sums of :meth:`add_gradient`."""
        self.worker.optimizer_zero_grad()

    def infer(self, batch: Any, arrays: BatchArrays, part: list[int]) -> Outputs:
        """One pass without gradients over some rows."""
        from verl.utils import tensordict_utils
        from verl.workers.utils.padding import no_padding_2_padding

        rows, own = self._own_rows(batch, arrays, part)
        tensordict_utils.assign_non_tensor(rows, compute_loss=False)
        output = self.worker.infer_batch(rows)
        return Outputs(no_padding_2_padding(output[self._says].to("cpu"), rows), rows, own)

    def _own_rows(self, batch: Any, arrays: BatchArrays, part: list[int]) -> tuple[Any, list[int]]:
        """Those of some rows that this process computes, with what verl has to know; and their numbers."""
        from verl.utils import tensordict_utils

        own, sizes = part, None
        if self._shard.count > 1:
            lengths: list[int] = arrays.lengths.tolist()
            limit = self._config.tokens_per_micro_batch
            parts = self._shard.micro_batches(
                lengths, part, limit, packed=self.packs, rows_max=self._config.rows_per_micro_batch
            )
            own, sizes = [row for rows in parts for row in rows], [len(rows) for rows in parts]
        rows = _rows_of(batch, own)
        settings = self._settings(rows) | ({} if sizes is None else {MICRO_BATCH_SIZES: tuple(sizes)})
        tensordict_utils.assign_non_tensor(rows, **settings)
        return rows, own

    def _settings(self, rows: Any) -> dict[str, Any]:
        return {
            "calculate_entropy": self._config.entropy_coefficient != 0.0,
            "global_batch_size": len(rows),
            "max_token_len_per_gpu": self._config.tokens_per_micro_batch,
            "use_dynamic_bsz": True,
            "use_remove_padding": self.packs,
            "use_fused_kernels": self._config.chunked_logits and self._says == "log_probs",
            MICRO_BATCH_ROWS_MAX: self._config.rows_per_micro_batch,
        }


def schedule_at(engine: Any, position: int) -> None:
    """Have verl's engine make its next update at this place of its schedule, from 0, however many it made before."""
    schedule = engine.lr_scheduler
    rates = [base * of(position) for base, of in zip(schedule.base_lrs, schedule.lr_lambdas, strict=True)]
    for group, rate in zip(engine.optimizer.param_groups, rates, strict=True):
        group["lr"] = rate
    schedule.last_epoch, schedule._last_lr = position, rates  # as LambdaLR's own step leaves them


def new_worker(
    config: VerlConfig,
    folder: Path,
    *,
    packs: bool,
    processes: int,
    stored: str = "fp32",
    says: Says = "log_probs",
    described_in: Path | None = None,
) -> Any:
    """A worker of verl's with the weights of a folder.

    Args:
        config: whose learning rate and adapter are those of this model.
        folder: the model.
        packs: compute rows one after another.
        processes: how many hold the model.
        stored: type of the weights, by verl's name.
        says: ``values``: a critic.
        described_in: a folder with configuration and tokenizer, where ``folder`` has none.

    Raises:
        TrainingError: a file of weights is missing or damaged.
    """
    from transformers.utils import logging as transformers_logging
    from verl.trainer.config import CheckpointConfig
    from verl.workers.config import FSDPEngineConfig, FSDPOptimizerConfig, HFModelConfig, TrainingWorkerConfig
    from verl.workers.engine_workers_tinker import TinkerTrainingWorker

    from .packed_attention import PACKED_ATTENTION, add_packed_attention

    add_packed_attention()
    untyped_logging: Any = transformers_logging
    untyped_logging.disable_progress_bar()
    precision = PRECISIONS[config.dtype]
    attention = PACKED_ATTENTION if packs else attention_in(described_in or folder)
    described = None if described_in is None else str(described_in)
    of_worker = TrainingWorkerConfig(
        model_type="value_model" if says == "values" else "language_model",
        model_config=HFModelConfig(
            path=str(folder),
            hf_config_path=described,
            tokenizer_path=described,
            use_remove_padding=packs,
            enable_gradient_checkpointing=config.gradient_checkpointing,
            use_fused_kernels=config.chunked_logits and says == "log_probs",
            override_config={"attn_implementation": attention},
            lora_rank=config.lora_rank,
            lora_alpha=config.lora_alpha,
            target_modules=config.lora_target_modules,
        ),
        engine_config=FSDPEngineConfig(
            strategy="fsdp2",
            model_dtype=stored,
            mixed_precision={"param_dtype": precision, "reduce_dtype": "fp32", "buffer_dtype": "fp32"},
            param_offload=config.offload_parameters,
            optimizer_offload=config.offload_optimizer,
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

    def new() -> Any:
        worker = TinkerTrainingWorker(of_worker)
        worker.reset()
        return worker

    files = weight_files(folder)
    if processes == 1 or not files:
        return new()
    try:
        with read_by_each(files):
            return new()
    except NotReadInPartsError:
        logger.warning("%s is read whole by the first process: transformers converts it as it is read", folder)
        return new()


def attention_in(folder: Path) -> str:
    """The attention that a model in a folder is loaded with, by transformers' name: verl has no default of its own."""
    from transformers import AutoConfig

    load: Any = AutoConfig.from_pretrained
    return attention_of(load(folder)) or "sdpa"


def _rows_of(batch: Any, part: list[int]) -> Any:
    from verl.utils import tensordict_utils

    if part == list(range(len(batch))):
        return batch.clone(recurse=False)
    return tensordict_utils.index_select_tensor_dict(batch, part)


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
