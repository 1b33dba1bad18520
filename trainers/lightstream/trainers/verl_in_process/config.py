"""Options of the in-process VERL algorithm."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from lightstream.schemas.errors import SettingsError

from ..batch import LOSS_NORMALISATIONS, Advantage, AdvantagePer, LossNormalisation, MissingReward, Overlong, Scoring
from .warm_up import WarmUp

__all__ = ["VerlConfig"]


@dataclass(frozen=True, kw_only=True)
class VerlConfig:
    """Options of a training. Defaults suit a model of a billion parameters; tiny ones take a larger learning rate.

    Attributes:
        model: folder (or name) of the initial model, with its tokenizer, as ``from_pretrained`` takes it.
        steps: how many steps to make in all.
        tasks_per_step: tasks in a step's batch.
        rollouts_per_task: samples of each task (``n``): the group that advantages are computed in.
        steps_ahead: how many steps' rollouts may be in progress beyond the step that is being made. 0 trains on the
            current policy alone; with k, calls may be sampled by a policy up to k versions old, not older.
        learning_rate, weight_decay, lr_warmup_steps, gradient_norm_max: of AdamW.
        lr_schedule: ``constant``, or ``cosine``: down to ``learning_rate_min_ratio`` of the rate at the last step.
        advantage, advantage_per, reward_missing, reward_fill, reward_dimensions: how rewards become advantages: see
            :class:`~lightstream.trainers.batch.Scoring`.
        clip_ratio_low, clip_ratio_high: bounds of the probability ratio.
        entropy_coefficient: weight of the entropy bonus. Where it is 0, rows without an advantage are not computed.
        loss_normalisation: what weighs the same in the loss: every ``token``, ``rollout``, or ``sequence`` (a merged
            segment), or a token whatever the length of its answer (``constant``: the loss is divided by the number
            of rollouts times ``response_tokens_max``). ``None``: ``constant`` for ``dr_grpo``, else ``token``.
        mini_batches_per_step, epochs_per_step: updates per step are their product. Every row is in one mini-batch of
            each epoch, whatever the number of rows.
        temperature: of the sampling; log-probabilities are compared at the same one.
        sampling_parameters: further parameters of the agent's calls (``max_tokens``, …).
        prompt_tokens_max: calls with a longer prompt are left out (and counted).
        response_tokens_max: longer responses are left out (and counted), or cut.
        overlong: ``exclude`` or ``truncate``: what becomes of them. Either way they count in their group's mean.
        tokens_per_micro_batch: memory bound of one forward and backward pass, in tokens with padding; a row that is
            longer is computed alone.
        resource_name: name of the model among the agent's resources.
        served_model: name the policy server answers to; version k is requested as ``<served_model>@k``.
        device: ``auto`` takes a GPU if there is one.
        dtype: number format of the forward pass; weights and optimiser are float32 always.
        threads: CPU threads of the arithmetic; ``None`` leaves torch's setting. Results are repeatable to the bit
            for the same number. Take 1 for a tiny model on a machine that runs everything else too: threads that wait
            for each other are ten times slower on busy cores.
        gradient_checkpointing: trade time for memory.
        keep_checkpoints: how many of the last steps' checkpoints stay on the disk.
        validate_every: measure the validation tasks before every so many steps, the first included, and after the
            last; 0 never.
        validation_samples: rollouts of each validation task; of more than one, pass@k is measured too.
        validation_sampling_parameters: of validation rollouts, ``temperature`` and ``max_tokens`` included; ``None``:
            as in training.
        steps_without_signal_max: this many steps in a row of which nothing could be trained on end the run; one is
            enough where every rollout failed.
        reward_target: end the run early once the mean reward of each of the last ``reward_target_steps`` steps, on
            average, is at least this; ``None``: make all steps.
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
    lr_schedule: Literal["constant", "cosine"] = "constant"
    learning_rate_min_ratio: float = 0.1
    advantage: Advantage = "grpo"
    advantage_per: AdvantagePer = "rollout"
    reward_missing: MissingReward = "exclude"
    reward_fill: float = 0.0
    reward_dimensions: Mapping[str, float] = field(default_factory=dict[str, float])
    clip_ratio_low: float = 0.2
    clip_ratio_high: float = 0.2
    entropy_coefficient: float = 0.0
    loss_normalisation: LossNormalisation | None = None
    mini_batches_per_step: int = 1
    epochs_per_step: int = 1
    temperature: float = 1.0
    sampling_parameters: Mapping[str, Any] = field(default_factory=dict[str, Any])
    prompt_tokens_max: int | None = None
    response_tokens_max: int | None = None
    overlong: Overlong = "exclude"
    tokens_per_micro_batch: int = 16_384
    resource_name: str = "main_llm"
    served_model: str = "policy"
    device: Literal["auto", "cpu", "cuda"] = "auto"
    dtype: Literal["float32", "bfloat16"] = "float32"
    threads: int | None = None
    gradient_checkpointing: bool = False
    keep_checkpoints: int = 4
    validate_every: int = 0
    validation_samples: int = 1
    validation_sampling_parameters: Mapping[str, Any] | None = None
    steps_without_signal_max: int = 3
    reward_target: float | None = None
    reward_target_steps: int = 5
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
            "validation_samples": 1,
            "steps_without_signal_max": 1,
            "reward_target_steps": 1,
            # Rollouts of the oldest allowed policy still need its weights.
            "keep_checkpoints": self.steps_ahead + 2,
        }
        for name, least in at_least.items():
            if getattr(self, name) < least:
                raise SettingsError(f"VERL's {name} is {getattr(self, name)}; at least {least} is needed.")
        for name in ("prompt_tokens_max", "response_tokens_max"):
            limit = getattr(self, name)
            if limit is not None and limit < 1:
                raise SettingsError(f"VERL's {name} is {limit}; at least 1, or None, is needed.")
        for name in ("temperature", "learning_rate"):  # training needs sampling
            if not 0 < getattr(self, name) < math.inf:
                raise SettingsError(f"VERL's {name} is {getattr(self, name)}; a finite number above 0 is needed.")
        for name, known in {
            "loss_normalisation": (None, *LOSS_NORMALISATIONS),
            "lr_schedule": ("constant", "cosine"),
            "overlong": ("exclude", "truncate"),
            "device": ("auto", "cpu", "cuda"),
            "dtype": ("float32", "bfloat16"),
        }.items():
            if getattr(self, name) not in known:
                raise SettingsError(
                    f"VERL's {name} is {getattr(self, name)!r}; there are {', '.join(map(str, known))}."
                )
        if self.normalisation == "constant" and self.response_tokens_max is None:
            raise SettingsError(
                "VERL's constant normalisation divides by response_tokens_max, which is not given.",
                next_step="Give it the most tokens an answer may have (max_tokens of the sampling).",
            )
        _ = self.scoring
        _check_sampling(self.sampling_parameters)

    @property
    def normalisation(self) -> LossNormalisation:
        """The loss normalisation that holds."""
        if self.loss_normalisation is not None:
            return self.loss_normalisation
        return "constant" if self.advantage == "dr_grpo" else "token"

    @property
    def scoring(self) -> Scoring:
        """Rules by which rewards become advantages."""
        return Scoring(
            advantage=self.advantage,
            per=self.advantage_per,
            reward_missing=self.reward_missing,
            reward_fill=self.reward_fill,
            dimensions=self.reward_dimensions,
        )


_NEUTRAL_SAMPLING: Mapping[str, tuple[Any, ...]] = {
    "top_p": (1, None),
    "top_k": (0, -1, None),
    "min_p": (0, None),
    "frequency_penalty": (0, None),
    "presence_penalty": (0, None),
    "repetition_penalty": (1, None),
    "logit_bias": ({}, None),
}
"""Sampling parameters that change the distribution -> values that do not."""


def _check_sampling(parameters: Mapping[str, Any]) -> None:
    """Refuse parameters under which tokens are not sampled from the policy's own distribution."""
    wrong = [
        f"{name}={parameters[name]!r}"
        for name, neutral in _NEUTRAL_SAMPLING.items()
        if name in parameters and parameters[name] not in neutral
    ]
    if wrong:
        raise SettingsError(
            f"VERL's sampling_parameters have {', '.join(wrong)}: tokens sampled so have other probabilities than the "
            "policy that is trained gives them, and each update would be biased.",
            next_step="Leave them out while training.",
        )
    if "temperature" in parameters:
        raise SettingsError("VERL's sampling_parameters have a temperature.", next_step="Set VERL's own temperature.")
