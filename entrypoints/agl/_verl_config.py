"""Agent Lightning's own keys in a configuration of verl's, and the keys that its examples give."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lightstream.schemas.errors import SettingsError

__all__ = ["EXAMPLES", "OWN_KEYS", "verl_config"]

OWN_KEYS = {
    "agentlightning.port": "no effect: ports are found",
    "agentlightning.trace_aggregator.level": "`transition` or `trajectory`: calls that continue each other are one "
    "row either way",
    "agentlightning.trace_aggregator.trajectory_max_prompt_length": "with `trajectory`: with "
    "`trajectory_max_response_length` how long a call's prompt may be, in place of `data.max_prompt_length`",
    "agentlightning.trace_aggregator.trajectory_max_response_length": "see `trajectory_max_prompt_length`",
    "agentlightning.trace_aggregator.debug": "no effect: `lightstream explain` shows which calls continue each other",
    "agentlightning.trace_aggregator.mismatch_log_dir": "no effect, as `debug`",
    "data.train_files": "no effect: tasks are those that `fit` is given",
    "data.val_files": "no effect: tasks are those that `fit` is given",
    "data.image_base_dir": "no effect: it is the program's own",
}
"""Key -> what it is here. verl's own of them mean nothing in Agent Lightning either."""

EXAMPLES = {
    name: keys.split()
    for name, keys in {
        "calc_x, spider, rag, chartqa, search_r1": """
            actor_rollout_ref.actor.clip_ratio_high actor_rollout_ref.actor.clip_ratio_low
            actor_rollout_ref.actor.entropy_coeff actor_rollout_ref.actor.fsdp_config.optimizer_offload
            actor_rollout_ref.actor.fsdp_config.param_offload actor_rollout_ref.actor.kl_loss_coef
            actor_rollout_ref.actor.optim.lr actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu
            actor_rollout_ref.actor.ppo_mini_batch_size actor_rollout_ref.actor.use_kl_loss
            actor_rollout_ref.model.enable_gradient_checkpointing actor_rollout_ref.model.path
            actor_rollout_ref.model.use_remove_padding actor_rollout_ref.ref.fsdp_config.param_offload
            actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu
            actor_rollout_ref.rollout.gpu_memory_utilization
            actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu actor_rollout_ref.rollout.n
            actor_rollout_ref.rollout.name actor_rollout_ref.rollout.tensor_model_parallel_size
            algorithm.adv_estimator algorithm.use_kl_in_reward data.max_prompt_length data.max_response_length
            data.train_batch_size trainer.critic_warmup trainer.experiment_name trainer.logger
            trainer.n_gpus_per_node trainer.nnodes trainer.project_name trainer.test_freq trainer.total_epochs
            trainer.total_training_steps trainer.val_before_train""",
        "calc_x, spider, rag, search_r1": """
            actor_rollout_ref.rollout.engine_kwargs.vllm.enable_auto_tool_choice
            actor_rollout_ref.rollout.engine_kwargs.vllm.tool_call_parser
            actor_rollout_ref.rollout.multi_turn.format""",
        "spider, rag, chartqa, search_r1": "data.truncation",
        "calc_x": """
            actor_rollout_ref.model.lora_adapter_path actor_rollout_ref.model.lora_rank
            agentlightning.trace_aggregator.level agentlightning.trace_aggregator.trajectory_max_prompt_length
            agentlightning.trace_aggregator.trajectory_max_response_length""",
        "calc_x, spider, search_r1": "trainer.save_freq",
        "spider, search_r1": "data.train_files data.val_files",
        "spider": "actor_rollout_ref.actor.use_torch_compile trainer.device",
        "chartqa": """
            actor_rollout_ref.rollout.enable_prefix_caching
            actor_rollout_ref.rollout.engine_kwargs.vllm.allowed_local_media_path data.image_base_dir""",
        "search_r1": """
            actor_rollout_ref.actor.kl_loss_type actor_rollout_ref.actor.optim.lr_warmup_steps_ratio
            trainer.default_local_dir""",
    }.items()
}
"""Examples of agentlightning 0.3.0 -> the keys that they give in one of their configurations."""

_AGGREGATOR = "agentlightning.trace_aggregator"


def verl_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration without :data:`OWN_KEYS`; some of these change verl's keys.

    Raises:
        SettingsError: a key below ``agentlightning`` is not known, or has a value without a counterpart.
    """
    rest: dict[str, Any] = {}
    own: dict[str, Any] = {}
    _part(config, "", rest, own)
    if unknown := sorted(name for name in own if name not in OWN_KEYS):
        named = ", ".join(f"{name}={own[name]!r}" for name in unknown)
        raise SettingsError(f"VERL's configuration has keys without a counterpart here: {named}.")
    level = own.get(f"{_AGGREGATOR}.level", "transition")
    if level not in ("transition", "trajectory"):
        raise SettingsError(f"{_AGGREGATOR}.level is {level!r}; there are transition and trajectory.")
    if level == "trajectory":
        given = [own.get(f"{_AGGREGATOR}.trajectory_max_{of}_length") for of in ("prompt", "response")]
        limits = [limit for limit in given if limit is not None]
        if len(limits) == len(given):
            rest = _without(rest, "data.max_prompt_length") | {"data.max_prompt_length": sum(limits)}
    return rest


def _part(values: Mapping[str, Any], prefix: str, rest: dict[str, Any], own: dict[str, Any]) -> None:
    """Sort values into those of verl's, which stay nested, and our own, by dotted key."""
    for name, value in values.items():
        key = f"{prefix}{name}"
        is_own = key in OWN_KEYS or key.startswith("agentlightning")
        if isinstance(value, Mapping) and (is_own or any(known.startswith(f"{key}.") for known in OWN_KEYS)):
            below: dict[str, Any] = {}
            _part(value, f"{key}.", below, own)
            if below:
                rest[name] = below
        elif is_own:
            own[key] = value
        else:
            rest[name] = value


def _without(values: Mapping[str, Any], dotted: str) -> dict[str, Any]:
    """Copy nested values without one of them."""
    head, _, tail = dotted.partition(".")
    remaining = {name: value for name, value in values.items() if name != dotted}
    if tail and isinstance(remaining.get(head), Mapping):
        remaining[head] = _without(remaining[head], tail)
    return remaining
