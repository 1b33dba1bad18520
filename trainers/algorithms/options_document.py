"""The page of VERL's options: ``python -m lightstream.trainers.algorithms.options_document > docs/options.md``."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from ..run.option import declared, options_as_markdown
from .verl import VERL

HEAD = """<!-- Written by `make docs`. -->

# Options of VERL

`VERL(model="...", steps=30, learning_rate=1e-5)` takes them as arguments, and `lightstream train` as flags
(`--learning-rate 1e-5`, or `--set learning_rate=1e-5`). [Training](training.md#verl) explains how they work together.
"""

CONFIG = """
## verl's own configuration

`config` takes verl's keys, beside the options above: [keys](training.md#verls-own-configuration).
"""

OPTION_GROUPS: Mapping[str, tuple[str, ...]] = {
    "Length of a run": ("steps", "epochs", "steps_without_signal_max", "reward_target", "reward_target_steps"),
    "Tasks and groups": (
        "tasks_per_step",
        "rollouts_per_task",
        "group_min",
        "group_deadline_s",
        "refill_silent_groups",
    ),
    "Steps ahead": ("steps_ahead", "stale", "over_sampling", "rollout_correction"),
    "Rewards and advantages": (
        "advantage",
        "advantage_per",
        "reward_missing",
        "reward_fill",
        "reward_dimensions",
        "awaited_rewards",
        "reward_model",
    ),
    "Calls that train": (
        "temperature",
        "sampling_parameters",
        "logprob_gap_max",
        "prompt_tokens_max",
        "response_tokens_max",
        "overlong",
    ),
    "Loss": (
        "policy_loss",
        "loss_normalisation",
        "clip_ratio_low",
        "clip_ratio_high",
        "dual_clip",
        "entropy_coefficient",
        "kl_loss_coefficient",
        "kl_loss_type",
        "kl_reward_coefficient",
        "kl_reward_type",
        "reference",
    ),
    "Critic": ("gamma", "lam", "critic_model", "critic_learning_rate", "value_clip", "critic_warmup_steps"),
    "Model": (
        "model",
        "policies",
        "resource_name",
        "served_model",
        "servers",
        "warm_up",
        "lora_rank",
        "lora_alpha",
        "lora_target_modules",
    ),
    "Optimiser": (
        "learning_rate",
        "lr_schedule",
        "lr_warmup_steps",
        "learning_rate_min_ratio",
        "weight_decay",
        "gradient_norm_max",
        "mini_batches_per_step",
        "epochs_per_step",
    ),
    "Memory and speed": (
        "device",
        "dtype",
        "threads",
        "tokens_per_micro_batch",
        "rows_per_micro_batch",
        "packed_rows",
        "chunked_logits",
        "gradient_checkpointing",
        "offload_parameters",
        "offload_optimizer",
        "offload_reference",
    ),
    "Several processes": ("processes", "engine", "nodes", "placement_wait_s"),
    "Validation": (
        "validate_every",
        "validation_samples",
        "validation_sampling_parameters",
        "val_only",
        "validation_data_dir",
    ),
    "Checkpoints and records": ("keep_checkpoints", "checkpoint_every", "rollout_data_dir"),
}


def verl_options_as_markdown() -> str:
    """Return every option in its group, with its default and its meaning.

    Raises:
        KeyError: an option is in no group, or a group names an option that there is not.
    """
    named = [name for names in OPTION_GROUPS.values() for name in names]
    if wrong := set(named) ^ declared(VERL).keys() or {name for name in named if named.count(name) > 1}:
        raise KeyError(f"OPTION_GROUPS needs each option of VERL once. Mend: {', '.join(sorted(wrong))}.")
    parts = (f"\n## {title}\n\n{options_as_markdown(VERL, names)}" for title, names in OPTION_GROUPS.items())
    return HEAD + "".join(parts) + CONFIG


if __name__ == "__main__":
    sys.stdout.write(verl_options_as_markdown())
