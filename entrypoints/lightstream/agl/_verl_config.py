"""verl's configuration as our options."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import SettingsError
from lightstream.trainers import VERL as Verl  # noqa: N811  # here it is a class among others
from lightstream.trainers import Algorithm, AlgorithmContext

__all__ = ["VerlInEpochs", "verl_of_config"]

logger = logging.getLogger(__name__)

OPTIONS = {
    "actor_rollout_ref.actor.clip_ratio_high": "clip_ratio_high",
    "actor_rollout_ref.actor.clip_ratio_low": "clip_ratio_low",
    "actor_rollout_ref.actor.entropy_coeff": "entropy_coefficient",
    "actor_rollout_ref.actor.grad_clip": "gradient_norm_max",
    "actor_rollout_ref.actor.optim.lr": "learning_rate",
    "actor_rollout_ref.actor.optim.lr_warmup_steps": "lr_warmup_steps",
    "actor_rollout_ref.actor.optim.weight_decay": "weight_decay",
    "actor_rollout_ref.actor.policy_loss.loss_mode": "policy_loss",
    "actor_rollout_ref.actor.ppo_epochs": "epochs_per_step",
    "actor_rollout_ref.actor.ppo_max_token_len_per_gpu": "tokens_per_micro_batch",
    "actor_rollout_ref.model.enable_gradient_checkpointing": "gradient_checkpointing",
    "actor_rollout_ref.model.lora_alpha": "lora_alpha",
    "actor_rollout_ref.model.lora_rank": "lora_rank",
    "actor_rollout_ref.model.path": "model",
    "actor_rollout_ref.model.target_modules": "lora_target_modules",
    "actor_rollout_ref.rollout.n": "rollouts_per_task",
    "actor_rollout_ref.rollout.temperature": "temperature",
    "data.max_prompt_length": "prompt_tokens_max",
    "data.max_response_length": "response_tokens_max",
    "data.train_batch_size": "tasks_per_step",
    "trainer.max_actor_ckpt_to_keep": "keep_checkpoints",
    "trainer.test_freq": "validate_every",
    "trainer.total_training_steps": "steps",
}
"""verl's key -> our option of the same meaning."""

LOSS_AGGREGATIONS = {
    "token-mean": "token",
    "seq-mean-token-mean": "sequence",
    "seq-mean-token-sum-norm": "constant",
}
"""verl's ``loss_agg_mode`` -> our ``loss_normalisation``."""

SAMPLING = {f"actor_rollout_ref.rollout.{name}": name for name in ("top_p", "top_k")}

AS_IT_IS: dict[str, tuple[Any, ...]] = {
    "actor_rollout_ref.rollout.mode": ("async",),
    "algorithm.kl_ctrl.type": ("fixed",),
    "trainer.critic_warmup": (0,),
}
"""verl's key -> values that ask for what is done here anyway."""

ESTIMATORS = ("grpo", "rloo", "reinforce_plus_plus", "reinforce_plus_plus_baseline")
"""verl's estimators that are ours, by the same names."""

SPECIAL = {
    "actor_rollout_ref.actor.use_kl_loss": "with `kl_loss_coef` and `kl_loss_type`: `kl_loss_coefficient` and "
    "`kl_loss_type`",
    "algorithm.use_kl_in_reward": "with `kl_ctrl.kl_coef` and `kl_penalty`: `kl_reward_coefficient` and "
    "`kl_reward_type`, one sum for a rollout; not with `reinforce_plus_plus`",
    "algorithm.adv_estimator": f"{', '.join(f'`{name}`' for name in ESTIMATORS)}: `advantage`",
    "actor_rollout_ref.actor.clip_ratio": "both `clip_ratio_low` and `clip_ratio_high`",
    "actor_rollout_ref.actor.ppo_mini_batch_size": "must divide `data.train_batch_size`: `mini_batches_per_step`",
    "algorithm.norm_adv_by_std_in_grpo": '`False`: `advantage="group_mean"`',
    "actor_rollout_ref.actor.loss_agg_mode": "`loss_normalisation`: `token-mean` is `token`, `seq-mean-token-mean` "
    "`sequence`, `seq-mean-token-sum-norm` `constant`",
    "trainer.nnodes": "times `trainer.n_gpus_per_node`: `processes`, which Ray starts where there is more than one",
    "trainer.total_epochs": "passes over the tasks, unless `trainer.total_training_steps` is given",
}
"""verl's keys that are read one by one, and what they become."""

NOT_OURS = (
    "actor_rollout_ref.actor.fsdp_config.*",
    "actor_rollout_ref.actor.ppo_micro_batch_size*",
    "actor_rollout_ref.actor.strategy",
    "actor_rollout_ref.actor.use_dynamic_bsz",
    "actor_rollout_ref.model.use_remove_padding",
    "actor_rollout_ref.ref.*",
    "actor_rollout_ref.rollout.engine_kwargs.*",
    "actor_rollout_ref.rollout.gpu_memory_utilization",
    "actor_rollout_ref.rollout.log_prob_*",
    "actor_rollout_ref.rollout.multi_turn.format",
    "actor_rollout_ref.rollout.name",
    "actor_rollout_ref.rollout.tensor_model_parallel_size",
    "agentlightning.port",
    "algorithm.kl_ctrl.horizon",
    "algorithm.kl_ctrl.target_kl",
    "trainer.default_local_dir",
    "trainer.device",
    "trainer.experiment_name",
    "trainer.logger",
    "trainer.project_name",
    "trainer.save_freq",
    "trainer.val_before_train",
)
"""Keys about machines, memory, logs and when to save: they do not change what is learned."""


class VerlInEpochs(Algorithm):
    """VERL for a number of passes over the tasks: the tasks decide how many steps these are.

    Args:
        epochs: passes; the rest at the end of one is left out, as verl does.
        options: of ``lightstream.trainers.VERL``, but ``steps``.
    """

    def __init__(self, epochs: int, options: Mapping[str, Any]) -> None:
        self.epochs = epochs
        self._options = dict(options)
        self._shortest = Verl(steps=0, **options)  # and see now whether they are right

    def of_tasks(self, tasks: int) -> Verl:
        """The algorithm for this many tasks.

        Raises:
            SettingsError: they are fewer than one step takes.
        """
        if tasks < self._shortest.tasks_per_step:
            raise SettingsError(f"{tasks} tasks are fewer than data.train_batch_size, {self._shortest.tasks_per_step}.")
        return Verl(steps=self.epochs * (tasks // self._shortest.tasks_per_step), **self._options)

    def check(self, settings: Settings) -> None:
        self._shortest.check(settings)

    def made_with(self) -> dict[str, str]:
        return self._shortest.made_with()

    def run(self, context: AlgorithmContext) -> None:
        self.of_tasks(len(context.train_dataset)).run(context)


def verl_of_config(config: Mapping[str, Any]) -> Algorithm:
    """The algorithm that verl's configuration describes; what it leaves out is as in ``lightstream.trainers.VERL``.

    Raises:
        SettingsError: a key has no counterpart, or a value none; all of them are named.
    """
    options: dict[str, Any] = {}
    sampling: dict[str, Any] = {}
    unknown: list[str] = []
    unused: list[str] = []
    given = dict(_flat(config))
    epochs = given.pop("trainer.total_epochs", None)
    mini_batch = given.pop("actor_rollout_ref.actor.ppo_mini_batch_size", None)
    if (both := given.pop("actor_rollout_ref.actor.clip_ratio", None)) is not None:
        options |= {"clip_ratio_low": both, "clip_ratio_high": both}
    options["processes"] = given.pop("trainer.nnodes", 1) * given.pop("trainer.n_gpus_per_node", 1)
    options |= _kl(given)
    estimator = given.pop("algorithm.adv_estimator", "grpo")
    if estimator not in ESTIMATORS:
        unknown.append(f"algorithm.adv_estimator={estimator!r}")
    elif estimator != "grpo":
        options["advantage"] = estimator
    if given.pop("algorithm.norm_adv_by_std_in_grpo", True) is False and estimator == "grpo":
        options["advantage"] = "group_mean"
    if estimator.startswith("reinforce") and "kl_reward_coefficient" in options:  # there it is a token's return to go
        unknown.append(f"algorithm.use_kl_in_reward=True with {estimator}")
    if (mode := given.pop("actor_rollout_ref.actor.loss_agg_mode", None)) is not None:
        if mode in LOSS_AGGREGATIONS:
            options["loss_normalisation"] = LOSS_AGGREGATIONS[mode]
        else:
            unknown.append(f"actor_rollout_ref.actor.loss_agg_mode={mode!r}")
    for key, value in given.items():
        if value is None and (key in OPTIONS or key in SAMPLING):
            continue  # as it is by default
        if key in OPTIONS:
            options[OPTIONS[key]] = value
        elif key in SAMPLING:
            sampling[SAMPLING[key]] = value
        elif any(fnmatchcase(key, pattern) for pattern in NOT_OURS):
            unused.append(key)
        elif value not in AS_IT_IS.get(key, ()):
            unknown.append(f"{key}={value!r}")
    if unknown:
        raise SettingsError(
            f"VERL's configuration has keys without a counterpart here: {', '.join(sorted(unknown))}.",
            next_step="Leave them out, or train with verl's own program.",
        )
    if "model" not in options or (epochs is None and options.get("steps") is None):
        raise SettingsError(
            "VERL's configuration lacks actor_rollout_ref.model.path, or both trainer.total_epochs and "
            "trainer.total_training_steps."
        )
    if unused:
        logger.warning("settings without effect in this process: %s", ", ".join(sorted(unused)))
    if sampling:
        options["sampling_parameters"] = sampling
    options["validate_every"] = max(0, options.get("validate_every", 0))  # -1 is never, there
    tasks = options.get("tasks_per_step", Verl.tasks_per_step)
    if mini_batch is not None:
        if tasks % mini_batch:
            raise SettingsError(f"data.train_batch_size {tasks} is not a multiple of ppo_mini_batch_size {mini_batch}.")
        options["mini_batches_per_step"] = tasks // mini_batch
    if epochs is None or "steps" in options:  # these count more than epochs, as there
        return Verl(**options)
    return VerlInEpochs(epochs, options)


def _kl(given: dict[str, Any]) -> dict[str, Any]:
    """Take the keys about KLs, and return our options; without its switch, a coefficient counts for nothing."""
    actor = "actor_rollout_ref.actor"
    in_loss = given.pop(f"{actor}.use_kl_loss", False)
    loss = given.pop(f"{actor}.kl_loss_coef", 0.001), given.pop(f"{actor}.kl_loss_type", "low_var_kl")
    in_reward = given.pop("algorithm.use_kl_in_reward", False)
    reward = given.pop("algorithm.kl_ctrl.kl_coef", 0.001), given.pop("algorithm.kl_penalty", "kl")
    options: dict[str, Any] = {}
    if in_loss:
        options["kl_loss_coefficient"], options["kl_loss_type"] = loss
    if in_reward:
        options["kl_reward_coefficient"], options["kl_reward_type"] = reward
    return options


def _flat(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in config.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
