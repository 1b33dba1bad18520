"""Options of the in-process VERL algorithm."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from lightstream.schemas.errors import SettingsError

from .warm_up import WarmUp

__all__ = ["VerlConfig"]


@dataclass(frozen=True, kw_only=True)
class VerlConfig:
    """What to train and how. Defaults suit a model of a billion parameters; tiny ones take a larger learning rate.

    Attributes:
        model: folder (or name) of the initial model, with its tokenizer, as ``from_pretrained`` takes it.
        steps: how many steps to make in all.
        tasks_per_step: tasks in a step's batch.
        rollouts_per_task: samples of each task (``n``): the group that advantages are computed in.
        steps_ahead: how many steps' rollouts may be in progress beyond the step that is being made. 0 trains on the
            current policy alone; with k, calls may be sampled by a policy up to k versions old, not older.
        learning_rate, weight_decay, lr_warmup_steps, gradient_norm_max: of AdamW.
        advantage: verl's estimator: ``grpo``, or ``dr_grpo`` (without dividing by the standard deviation).
        clip_ratio_low, clip_ratio_high: bounds of the probability ratio.
        entropy_coefficient: weight of the entropy bonus.
        loss_aggregation: verl's ``loss_agg_mode``.
        mini_batches_per_step, epochs_per_step: updates per step are their product. Every row is in one mini-batch of
            each epoch, whatever the number of rows.
        temperature: of the sampling; log-probabilities are compared at the same one.
        sampling_parameters: further parameters of the agent's calls (``max_tokens``, …).
        prompt_tokens_max, response_tokens_max: longer calls are left out (and counted).
        tokens_per_micro_batch: memory bound of one forward and backward pass.
        resource_name: name of the model among the agent's resources.
        served_model: name the policy server answers to; version k is requested as ``<served_model>@k``.
        device: ``auto`` takes a GPU if there is one.
        dtype: number format of the forward pass; weights and optimiser are float32 always.
        threads: CPU threads of the arithmetic; ``None`` leaves torch's setting. Results are repeatable to the bit
            for the same number. Take 1 for a tiny model on a machine that runs everything else too: threads that wait
            for each other are ten times slower on busy cores.
        gradient_checkpointing: trade time for memory.
        keep_checkpoints: how many of the last steps' checkpoints stay on the disk.
        validate_every: measure the validation tasks before every so many steps; 0 never.
        warm_up: called once with the initial model and its tokenizer, before version 0 is published.
    """

    model: str | Path
    steps: int
    tasks_per_step: int = 8
    rollouts_per_task: int = 8
    steps_ahead: int = 0
    learning_rate: float = 1e-6
    weight_decay: float = 0.01
    lr_warmup_steps: int = 0
    gradient_norm_max: float = 1.0
    advantage: Literal["grpo", "dr_grpo"] = "grpo"
    clip_ratio_low: float = 0.2
    clip_ratio_high: float = 0.2
    entropy_coefficient: float = 0.0
    loss_aggregation: str = "token-mean"
    mini_batches_per_step: int = 1
    epochs_per_step: int = 1
    temperature: float = 1.0
    sampling_parameters: Mapping[str, Any] = field(default_factory=dict[str, Any])
    prompt_tokens_max: int | None = None
    response_tokens_max: int | None = None
    tokens_per_micro_batch: int = 16_384
    resource_name: str = "main_llm"
    served_model: str = "policy"
    device: Literal["auto", "cpu", "cuda"] = "auto"
    dtype: Literal["float32", "bfloat16"] = "float32"
    threads: int | None = None
    gradient_checkpointing: bool = False
    keep_checkpoints: int = 4
    validate_every: int = 0
    warm_up: WarmUp | None = None

    def __post_init__(self) -> None:
        at_least = {
            "steps": 0,
            "tasks_per_step": 1,
            "rollouts_per_task": 1,
            "steps_ahead": 0,
            "lr_warmup_steps": 0,
            "mini_batches_per_step": 1,
            "epochs_per_step": 1,
            "tokens_per_micro_batch": 1,
            "validate_every": 0,
            # Rollouts of the oldest allowed policy still need its weights.
            "keep_checkpoints": self.steps_ahead + 2,
        }
        for name, least in at_least.items():
            if getattr(self, name) < least:
                raise SettingsError(f"VERL's {name} is {getattr(self, name)}; at least {least} is needed.")
        if self.temperature <= 0:
            raise SettingsError(f"VERL's temperature is {self.temperature}; training needs sampling, so more than 0.")
        if self.learning_rate <= 0:
            raise SettingsError(f"VERL's learning_rate is {self.learning_rate}; more than 0 is needed.")
