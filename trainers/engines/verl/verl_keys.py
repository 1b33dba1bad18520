"""verl's configuration as our options: every key of it is an option here, harmless, or refused with the reason."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

from lightstream.schemas.distribution import install_hint
from lightstream.schemas.errors import SettingsError

from ...run.option import declared
from .config import CRITIC_OPTIONS, VerlConfig
from .correction import RolloutCorrection

logger = logging.getLogger(__name__)

_KEYS = {key: name for name, of in declared(VerlConfig).items() for key in of.verl}

OPTIONS = {key: name for key, name in sorted(_KEYS.items()) if name not in CRITIC_OPTIONS}
"""verl's key -> our option of the same meaning. ``None`` is as the option is by default."""

ESTIMATORS = ("grpo", "rloo", "remax", "reinforce_plus_plus", "reinforce_plus_plus_baseline", "gae")
"""verl's estimators that are ours, by the same names."""

LOSS_AGGREGATIONS = {
    "token-mean": "token",
    "seq-mean-token-mean": "sequence",
    "seq-mean-token-sum-norm": "constant",
}
"""verl's ``loss_agg_mode`` -> our ``loss_normalisation``."""

CRITIC = {key: name for key, name in sorted(_KEYS.items()) if name in CRITIC_OPTIONS}
"""verl's key -> our option, where the estimator is ``gae``."""

AS_ACTOR = dict(sorted((key, name) for name, of in declared(VerlConfig).items() for key in of.verl_critic))
"""verl's key -> our option, which holds for actor and critic alike."""

_ACTOR, _ROLLOUT, _CORRECTION = "actor_rollout_ref.actor", "actor_rollout_ref.rollout", "algorithm.rollout_correction"
_REF = "actor_rollout_ref.ref"

SAME = {
    f"{_ACTOR}.rollout_n": "rollouts_per_task",
    f"{_REF}.rollout_n": "rollouts_per_task",
    "critic.rollout_n": "rollouts_per_task",
    f"{_REF}.fsdp_config.dtype": "dtype",
    f"{_ACTOR}.use_fused_kernels": "chunked_logits",
    f"{_ACTOR}.use_remove_padding": "packed_rows",
    f"{_ROLLOUT}.prompt_length": "prompt_tokens_max",
    f"{_ROLLOUT}.response_length": "response_tokens_max",
}
"""verl's key -> our option that another key says, whose value this one must have too."""

SMALLEST = {
    "tokens_per_micro_batch": (
        f"{_REF}.log_prob_max_token_len_per_gpu",
        f"{_ROLLOUT}.log_prob_max_token_len_per_gpu",
        "critic.ppo_max_token_len_per_gpu",
        "critic.forward_max_token_len_per_gpu",
    ),
    "rows_per_micro_batch": (
        f"{_REF}.log_prob_micro_batch_size_per_gpu",
        f"{_ROLLOUT}.log_prob_micro_batch_size_per_gpu",
        "critic.ppo_micro_batch_size_per_gpu",
        "critic.forward_micro_batch_size_per_gpu",
    ),
}
"""Our option -> verl's keys of single passes, beside the one of the option's own. The smallest that is given holds for
all passes: a pass needs no more memory than it was given, and computes the same."""

DYNAMIC = (
    f"{_ACTOR}.use_dynamic_bsz",
    f"{_REF}.log_prob_use_dynamic_bsz",
    f"{_ROLLOUT}.log_prob_use_dynamic_bsz",
    "critic.use_dynamic_bsz",
)

_OF_SERVERS = (
    "name",
    "nnodes",
    "n_gpus_per_node",
    "gpu_memory_utilization",
    "enforce_eager",
    "cudagraph_capture_sizes",
    "free_cache_engine",
    "*_parallel_size",
    "max_num_batched_tokens",
    "max_model_len",
    "max_num_seqs",
    "enable_chunked_prefill",
    "enable_prefix_caching",
    "scheduling_policy",
    "load_format",
    "layered_summon",
    "disable_log_stats",
    "multi_stage_wake_up",
    "engine_kwargs.*",
    "router_config_path",
    "checkpoint_engine.update_weights_bucket_megabytes",
    "checkpoint_engine.engine_kwargs",
    "trace.*",
    "skip_tokenizer_init",
    "moe_load_balance_metrics_interval",
    "prometheus.*",
    "disaggregation.*",
)

READ = {
    f"{_ACTOR}.use_kl_loss": "with `kl_loss_coef` and `kl_loss_type`: `kl_loss_coefficient` and `kl_loss_type`",
    f"{_ACTOR}.kl_loss_coef": "with `use_kl_loss`",
    f"{_ACTOR}.kl_loss_type": "with `use_kl_loss`",
    "algorithm.use_kl_in_reward": "with `kl_ctrl.kl_coef` and `kl_penalty`: `kl_reward_coefficient` and "
    "`kl_reward_type`, one sum for a rollout, or with `gae` token by token; not with `remax` and `reinforce_plus_plus`",
    "algorithm.kl_ctrl.kl_coef": "with `use_kl_in_reward`",
    "algorithm.kl_penalty": "with `use_kl_in_reward`",
    "algorithm.adv_estimator": f"{', '.join(f'`{name}`' for name in ESTIMATORS)}: `advantage`",
    "algorithm.norm_adv_by_std_in_grpo": '`False`: `advantage="group_mean"`',
    **{
        f"{_CORRECTION}.{name}": "`rollout_correction`"
        for name in ("rollout_is", "rollout_is_threshold", "rollout_rs", "rollout_rs_threshold")
    },
    **{key: f"with `gae`: `{option}`" for key, option in CRITIC.items()},
    **{
        key: f"with `gae`: as `{option}` of the actor, which holds for the critic too; anything else is refused"
        for key, option in AS_ACTOR.items()
    },
    "critic.loss_scale_factor": "`null` alone: `seq-mean-token-sum-norm` divides by `data.max_response_length`",
    "critic.enable": "whether `algorithm.adv_estimator` is `gae`; anything else is refused",
    "trainer.critic_warmup": "with `gae`: `critic_warmup_steps`, one less: verl's actor learns from this step on",
    f"{_ACTOR}.clip_ratio": "both `clip_ratio_low` and `clip_ratio_high`",
    f"{_ACTOR}.loss_agg_mode": "`loss_normalisation`: `token-mean` is `token`, `seq-mean-token-mean` `sequence`, "
    "`seq-mean-token-sum-norm` `constant`",
    f"{_ACTOR}.optim.lr_warmup_steps": "`lr_warmup_steps`; -1 is none, or what `lr_warmup_steps_ratio` says",
    f"{_ACTOR}.optim.lr_warmup_steps_ratio": "times `trainer.total_training_steps`, rounded down: `lr_warmup_steps`",
    f"{_ACTOR}.ppo_mini_batch_size": "must divide `data.train_batch_size`: `mini_batches_per_step`",
    **{f"{_ROLLOUT}.{name}": f"`{name}` of the agent's calls" for name in ("top_p", "top_k")},
    **{
        f"{_ROLLOUT}.val_kwargs.{name}": "`validation_sampling_parameters`"
        for name in ("temperature", "top_p", "top_k")
    },
    "reward.reward_model.enable": "with `reward.reward_model.model_path`: `reward_model`",
    "reward.reward_model.model_path": "with `reward.reward_model.enable`",
    "reward_model.enable": "verl's older name of `reward.reward_model.enable`",
    "reward_model.model.path": "verl's older name of `reward.reward_model.model_path`",
    **{key: f"as `{option}`; anything else is refused" for key, option in SAME.items()},
    **{key: f"the smallest that is given for a pass: `{option}`" for option, keys in SMALLEST.items() for key in keys},
    **dict.fromkeys(DYNAMIC, "bounds of tokens and of rows both hold, either way"),
    "trainer.nnodes": "`nodes`; times `trainer.n_gpus_per_node`: `processes`, which Ray starts where they are several",
    "trainer.n_gpus_per_node": "see `trainer.nnodes`",
    "trainer.test_freq": "`validate_every`; -1 is never",
    "trainer.v1.trainer_mode": "`sync` alone: verl's others are `steps_ahead` here",
}
"""verl's keys that are read one by one -> what they become."""

_OPTIMISER = "AdamW is what there is, with torch's betas"
_SEED = "the seed of everything is the Trainer's: Trainer(seed=...)"
_AGENT = "the agent makes its own calls and runs its own tools"
_TASKS = "tasks are handed to fit"
_REWARD = "the agent returns its reward"
_REWARD_MODEL = "the reward model runs in the trainer's process, and reads token ids"
_MODEL = "the model is what from_pretrained makes of its folder"
_CRITIC = "the critic is trained whole, and as from_pretrained makes it of its folder"
_DIVIDED = "each layer of the model is divided over all processes"
_CHUNKS = "use_fused_kernels is what spares logits here, by torch"
_ROWS = "its name with _per_gpu is the option here"
_LAYERS = "layers are computed as transformers has them"
_SERVERS = "it is of the engine within verl, which is not started: model servers have options of their own"
_PROFILER = "nothing is profiled by verl"
_TRACKERS = "trackers are the Trainer's"
_LORA = "an adapter is made anew, by lora_rank, lora_alpha and target_modules"

REFUSED: dict[str, str] = {
    f"{_ACTOR}.freeze_vision_tower": "a vision tower is trained with the rest",
    f"{_ACTOR}.loss_scale_factor": "seq-mean-token-sum-norm divides by data.max_response_length",
    f"{_ACTOR}.optim.*": _OPTIMISER,
    f"{_ACTOR}.policy_loss.*": "it is of an objective that is not offered",
    f"{_ACTOR}.tau_*": "it is of an objective that is not offered",
    "*.strategy": "FSDP shards the model here, nothing else",
    "*.turbo_config.*": "FSDP shards the model here, nothing else",
    "*.ulysses_sequence_parallel_size": "no sequence is split over several GPUs here",
    "*.qat.*": "no quantised weights are trained",
    f"{_ROLLOUT}.agent.*": _AGENT,
    f"{_ROLLOUT}.calculate_log_probs": "the sampler's log-probabilities are always needed",
    f"{_ROLLOUT}.do_sample": "training needs sampling",
    f"{_ROLLOUT}.qat": "no quantised weights are trained",
    f"{_ROLLOUT}.enable_rollout_routing_replay": "routing of experts is not recorded",
    f"{_ROLLOUT}.full_determinism": _SEED,
    f"{_ROLLOUT}.ignore_eos": _AGENT,
    f"{_ROLLOUT}.mode": "agents call the model over HTTP",
    f"{_ROLLOUT}.mtp": "there are no heads for several tokens",
    f"{_ROLLOUT}.multi_turn.*": _AGENT,
    f"{_ROLLOUT}.over_sample_rate": "over_sampling is the option here",
    f"{_ROLLOUT}.quantization*": "tokens would be sampled from other weights than those that are trained",
    f"{_ROLLOUT}.seed": _SEED,
    f"{_ROLLOUT}.val_kwargs.do_sample": "val_kwargs.temperature says it: 0 takes the likeliest token",
    "actor_rollout_ref.model.custom_chat_template": _MODEL,
    "actor_rollout_ref.model.exclude_modules": _LORA,
    "actor_rollout_ref.model.external_lib": _MODEL,
    "actor_rollout_ref.model.hf_config_path": _MODEL,
    "actor_rollout_ref.model.lora.*": _LORA,
    "actor_rollout_ref.model.lora_adapter_path": _LORA,
    "actor_rollout_ref.model.mtp.*": "there are no heads for several tokens",
    "actor_rollout_ref.model.override_config": _MODEL,
    "actor_rollout_ref.model.tokenizer_path": _MODEL,
    "actor_rollout_ref.model.trust_remote_code": "no code of a model's folder is run",
    "algorithm.filter_groups.*": "refill_silent_groups is the option here",
    "algorithm.kl_ctrl.type": "the coefficient is fixed: an adaptive one would be a state to recover",
    "algorithm.pf_ppo.*": "rollouts are not drawn again by their rewards",
    "algorithm.rollout_correction.*": "the decoupled correction with PPO's clip is what there is",
    "algorithm.use_pf_ppo": "rollouts are not drawn again by their rewards",
    "critic.model.external_lib": _CRITIC,
    "critic.model.hf_config_path": _CRITIC,
    "critic.model.lora*": _CRITIC,
    "critic.model.override_config": _CRITIC,
    "critic.model.trust_remote_code": "no code of a model's folder is run",
    "critic.optim.*": _OPTIMISER,
    "custom_reward_function.*": _REWARD,
    "data.apply_chat_template_kwargs": _AGENT,
    "data.custom_cls.*": _TASKS,
    "data.filter_overlong_prompts": "calls with a longer prompt are left out, and counted",
    "data.function_tool_path": _AGENT,
    "data.gen_batch_size": "a step asks for what it takes",
    "data.mm_processor_kwargs": _AGENT,
    "data.seed": _SEED,
    "data.shuffle": "the order of tasks follows from the Trainer's seed",
    "data.tokenizer": _MODEL,
    "data.tool_config_path": _AGENT,
    "data.train_files": _TASKS,
    "data.train_max_samples": _TASKS,
    "data.truncation": "overlong is the option here",
    "data.trust_remote_code": "no code of a model's folder is run",
    "data.val_files": _TASKS,
    "data.val_max_samples": _TASKS,
    "data.*_key": _TASKS,
    "distillation.*": "there is no teacher",
    "reward.reward_model.*": _REWARD_MODEL,
    "reward.*": _REWARD,
    "reward_model.*": _REWARD_MODEL,
    "sandbox_fusion.*": _REWARD,
    "skip.*": "`train_recorded` and `lightstream replay --train` train on recorded rollouts",
    "trainer.checkpoint_callback_class": "observers of the Trainer are called after each step",
    "trainer.default_hdfs_dir": "weights are in the data folder",
    "trainer.resume_*": "a run goes on where it was, by its run_id",
    "trainer.v1.sampler.*": "steps_ahead and stale are the options here",
    "*.fsdp_config.wrap_policy.*": _DIVIDED,
    "critic.fsdp.wrap_policy.*": _DIVIDED,
    "*.fsdp_size": _DIVIDED,
    "*.reshard_after_forward": _DIVIDED,
    "*.forward_prefetch": _DIVIDED,
    "*.offload_policy": "param_offload and optimizer_offload are the options here",
    f"{_REF}.fsdp_config.optimizer_offload": "a reference has no optimiser",
    "*.model_dtype": "weights are float32: dtype says what a pass computes in",
    "*.use_no_sync_for_gradient_accumulation": "gradients are divided after each micro-batch",
    "*.entropy_from_logits*": _CHUNKS,
    "*.entropy_checkpointing": _CHUNKS,
    "*.fused_kernel_options.*": _CHUNKS,
    "critic.model.use_fused_kernels": "a critic has no logits",
    "critic.model.use_remove_padding": "a critic packs its rows as the actor does",
    "*.pad_to_length*": "rows are padded to the longest of their micro-batch, or not at all",
    "*.forward_only": "which models learn follows from the algorithm",
    "*.fsdp_config.seed": _SEED,
    "critic.fsdp.seed": _SEED,
    "*.full_determinism": _SEED,
    "*.data_loader_seed": _SEED,
    f"{_ACTOR}.shuffle": "the order of mini-batches follows from the Trainer's seed",
    "critic.shuffle": "the order of mini-batches follows from the Trainer's seed",
    "*.ppo_micro_batch_size": _ROWS,
    "*.log_prob_micro_batch_size": _ROWS,
    "*.forward_micro_batch_size": _ROWS,
    f"{_ACTOR}.calculate_sum_pi_squared": "it is of an estimator that is not offered",
    f"{_ACTOR}.use_prefix_grouper": "prompts that rows share are computed once a row",
    "*.enable_activation_offload": "activations stay where they are: enable_gradient_checkpointing is the option here",
    "*.tiled_mlp.*": _LAYERS,
    "*.use_liger": _LAYERS,
    f"{_ROLLOUT}.dtype": "servers compute in the type of the weights that they are given, which is dtype",
    f"{_ROLLOUT}.logprobs_mode": "log-probabilities are those that tokens are sampled by",
    f"{_ROLLOUT}.checkpoint_engine.backend": "weights are delivered by path",
    f"{_ROLLOUT}.checkpoint_engine.custom_backend_module": "weights are delivered by path",
    "critic.model.*": _CRITIC,
    "data.image_patch_size": "the model's own processor says it",
}
"""Patterns of verl's other keys -> why nothing but verl's own default is taken."""

HARMLESS: dict[str, str] = {
    "*.profiler.*": _PROFILER,
    "global_profiler.*": _PROFILER,
    "*.use_orig_params": "it is of an older FSDP",
    "*.use_torch_compile": "nothing is compiled, which takes longer and computes the same",
    f"{_ACTOR}.calculate_entropy": "the entropy of sampled tokens is always measured",
    "*.checkpoint.*": "a checkpoint has all that a restart needs",
    **{f"{_ROLLOUT}.{name}": _SERVERS for name in _OF_SERVERS},
    f"{_ROLLOUT}.agent.num_workers": "Runners are the Trainer's",
    f"{_ROLLOUT}.multi_turn.enable": _AGENT,
    f"{_ROLLOUT}.multi_turn.format": _AGENT,
    "*.model.use_shm": "a folder is read where it is",
    "actor_rollout_ref.hybrid_engine": "model servers are programs of their own",
    "actor_rollout_ref.nccl_timeout": "torch's own limit holds",
    "algorithm.kl_ctrl.horizon": "it is of an adaptive coefficient, which is refused",
    "algorithm.kl_ctrl.target_kl": "it is of an adaptive coefficient, which is refused",
    "data.dataloader_num_workers": _TASKS,
    "data.filter_overlong_prompts_workers": _TASKS,
    "data.return_*": _TASKS,
    "data.use_shm": _TASKS,
    "data.val_batch_size": _TASKS,
    "data.validation_shuffle": _TASKS,
    "ray_kwargs.*": "Ray is joined by RAY_ADDRESS",
    "reward.num_workers": _REWARD,
    "trainer.balance_batch": "micro-batches are always of rows of nearly one length",
    "trainer.default_local_dir": "weights are in the data folder",
    "trainer.device": "device is the option here",
    "trainer.del_local_ckpt_after_load": "keep_checkpoints says it",
    "trainer.esi_redundant_time": "a run that is ended goes on later",
    "trainer.experiment_name": _TRACKERS,
    "trainer.log_val_generations": _TRACKERS,
    "trainer.logger": _TRACKERS,
    "trainer.max_critic_ckpt_to_keep": "keep_checkpoints says it",
    "trainer.project_name": _TRACKERS,
    "trainer.ray_wait_register_center_timeout": "processes find each other without a register",
    "trainer.save_freq": "weights are written at each update, checkpoints every checkpoint_every steps",
    "trainer.use_v1": "the loop is one of our own",
    "trainer.v1.sync": "the loop is one of our own",
    "trainer.v1.colocate_async.*": "the loop is one of our own",
    "trainer.v1.separate_async.*": "the loop is one of our own: steps_ahead says how far rollouts are ahead",
    "trainer.val_before_train": "validate_every says when a policy is measured",
    "transfer_queue.*": "batches go to the processes by Ray, or not at all",
}
"""Patterns of the rest -> why they are harmless: they are about machines, logs and files, or about parts of verl's that
are not used. None bears on the memory of a training, or on its mathematics."""


_AS_GOOD: dict[str, tuple[Any, ...]] = {
    "strategy": ("fsdp", "fsdp2"),
    "ulysses_sequence_parallel_size": (1,),
}
"""Last part of a key -> values that are taken beside verl's default, which may be a reference to another key."""


def options_of_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Options of ``VERL`` that verl's configuration describes, whose keys may be nested, or dotted.

    Keys that have no effect here are named in the log.

    Raises:
        SettingsError: a key is not verl's, or what it asks for is not done here; all are named, with the reason.
    """
    given, problems = _flat(config)
    defaults, unused = verl_defaults(), list[str]()
    has_critic = given.get("algorithm.adv_estimator") == "gae"
    for key, value in given.items():
        if key.startswith("critic.") and key in defaults and key != "critic.enable" and not has_critic:
            unused.append(key)
            continue
        if key in OPTIONS or key in READ:
            continue
        if (leaf := _leaf(key, defaults)) is None:
            nearest = difflib.get_close_matches(key, defaults, n=1, cutoff=0.0)
            problems.append(f"{key} is no key of verl's (the nearest is {nearest[0]})")
        elif harmless_of(leaf) is not None:
            unused.append(key)
        elif leaf != key or value not in (defaults[leaf], *_AS_GOOD.get(key.rpartition(".")[2], ())):
            problems.append(f"{key}={value!r}: {refusal_of(leaf)}")
    options, of_values = _options(given)
    problems += of_values
    if problems:
        raise SettingsError(
            f"VERL's configuration cannot be followed: {'; '.join(sorted(problems))}.",
            next_step="Leave these out, or train with verl's own program.",
        )
    if unused:
        logger.warning("settings without effect in this process: %s", ", ".join(sorted(unused)))
    return options


def harmless_of(key: str) -> str | None:
    """Why a key that is no option is harmless; ``None``: it is refused."""
    return next((reason for pattern, reason in HARMLESS.items() if fnmatchcase(key, pattern)), None)


def refusal_of(key: str) -> str:
    """Why a key that is neither an option nor harmless is refused."""
    return next(reason for pattern, reason in REFUSED.items() if fnmatchcase(key, pattern))


@cache
def verl_defaults() -> Mapping[str, Any]:
    """Every key of the configuration of verl's trainer, dotted -> its value by default, as its file has it.

    Raises:
        SettingsError: verl is not installed.
    """
    from omegaconf import OmegaConf  # comes with verl

    content = OmegaConf.to_container(OmegaConf.load(defaults_file()), resolve=False)
    flat, _ = _flat(cast("Mapping[str, Any]", content), keep_empty=True)
    return {key: value for key, value in flat.items() if not key.endswith("_target_")}


def defaults_file() -> Path:
    """verl's file with the whole configuration of its trainer.

    Raises:
        SettingsError: verl is not installed.
    """
    found = find_spec("verl")
    if found is None or not found.submodule_search_locations:
        raise SettingsError("verl is not installed.", next_step=f"Install it with {install_hint('train')}.")
    return Path(found.submodule_search_locations[0], "trainer", "config", "_generated_ppo_trainer.yaml")


def _flat(config: Mapping[str, Any], *, keep_empty: bool = False) -> tuple[dict[str, Any], list[str]]:
    """The values by dotted key, and what is wrong with the keys."""
    flat: dict[str, Any] = {}
    problems: list[str] = []

    def add(values: Mapping[str, Any], prefix: str) -> None:
        for name, value in values.items():
            key = f"{prefix}{name}"
            if isinstance(value, Mapping) and (value or not keep_empty):
                add(cast("Mapping[str, Any]", value), f"{key}.")
                continue
            if isinstance(value, Sequence) and not isinstance(value, str):
                items: Sequence[Any] = value
                value = list(items)  # OmegaConf's are no lists
            if flat.setdefault(key, value) != value:
                problems.append(f"{key} is given twice")
            flat[key] = value

    add(config, "")
    return flat, problems


def _leaf(key: str, defaults: Mapping[str, Any]) -> str | None:
    """The key of verl's that this is, or that has no keys of its own and so may have any below it."""
    if key in defaults:
        return key
    above = key
    while above and above not in defaults:
        above = above.rpartition(".")[0]
    return above if above and defaults[above] in (None, {}) else None


def _options(given: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Our options, and which values have no counterpart."""
    options: dict[str, Any] = {}
    problems: list[str] = []

    def put(name: str, value: Any, key: str) -> None:
        if options.setdefault(name, value) != value:
            problems.append(f"{key}={value!r}: {name} is {options[name]!r} by another key")

    for key, value in given.items():
        if key in OPTIONS and value is not None:
            put(OPTIONS[key], value, key)
    for key, name in ((f"{_ACTOR}.optim.lr_warmup_steps", "lr_warmup_steps"), ("trainer.test_freq", "validate_every")):
        if given.get(key) is not None:
            options[name] = max(0, given[key])
    if share := given.get(f"{_ACTOR}.optim.lr_warmup_steps_ratio"):
        if "steps" not in options:
            ratio = f"{_ACTOR}.optim.lr_warmup_steps_ratio={share!r}"
            problems.append(f"{ratio}: it is of trainer.total_training_steps, which is not given")
        elif (given.get(f"{_ACTOR}.optim.lr_warmup_steps") or -1) < 0:
            options["lr_warmup_steps"] = int(share * options["steps"])
    if (both := given.get(f"{_ACTOR}.clip_ratio")) is not None:
        options = {"clip_ratio_low": both, "clip_ratio_high": both} | options
    if "response_tokens_max" in options:
        options["overlong"] = "truncate"  # verl trains on answers that were cut off
    if {"trainer.nnodes", "trainer.n_gpus_per_node"} & given.keys():
        options["nodes"] = given.get("trainer.nnodes", 1)
        options["processes"] = options["nodes"] * given.get("trainer.n_gpus_per_node", 1)
    if (mode := given.get("trainer.v1.trainer_mode", "sync")) != "sync":
        problems.append(f"trainer.v1.trainer_mode={mode!r}: steps_ahead is the option here")
    for name, keys in SMALLEST.items():
        bounds = [options[name]] if options.get(name) is not None else []
        bounds += [given[key] for key in keys if isinstance(given.get(key), int)]
        if bounds:
            options[name] = min(bounds)
    for key, name in SAME.items():
        value, ours = given.get(key), options.get(name, getattr(VerlConfig, name))
        if value is not None and not _is_reference(value) and value != ours:
            problems.append(f"{key}={value!r}: {name} is {ours!r} by another key")
    if "steps" in options:
        options.pop("epochs", None)  # these count more, as there
    options |= _sampling(given) | _kl(given) | _correction(given)
    of_reward, of_values = _reward_model(given)
    options, problems = options | of_reward, problems + of_values
    mode = given.get(f"{_ACTOR}.loss_agg_mode", "token-mean")
    if mode not in LOSS_AGGREGATIONS:
        problems.append(f"{_ACTOR}.loss_agg_mode={mode!r}: there are {', '.join(LOSS_AGGREGATIONS)}")
    elif f"{_ACTOR}.loss_agg_mode" in given:
        options["loss_normalisation"] = LOSS_AGGREGATIONS[mode]
    estimator = given.get("algorithm.adv_estimator", "grpo")
    if estimator not in ESTIMATORS:
        problems.append(f"algorithm.adv_estimator={estimator!r}: there are {', '.join(ESTIMATORS)}")
    elif estimator != "grpo":
        options["advantage"] = estimator
    elif given.get("algorithm.norm_adv_by_std_in_grpo") is False:
        options["advantage"] = "group_mean"
    if (estimator == "remax" or estimator.startswith("reinforce")) and "kl_reward_coefficient" in options:
        problems.append(f"algorithm.use_kl_in_reward=True with {estimator}: there it is a token's return to go")
    if (mini_batch := given.get(f"{_ACTOR}.ppo_mini_batch_size")) is not None:
        tasks = options.get("tasks_per_step", VerlConfig.tasks_per_step)
        if tasks % mini_batch:
            problems.append(f"data.train_batch_size {tasks} is not a multiple of ppo_mini_batch_size {mini_batch}")
        options["mini_batches_per_step"] = tasks // mini_batch
    of_critic, of_values = _critic(given, options) if estimator == "gae" else ({}, _without_critic(given))
    return options | of_critic, problems + of_values


def _is_reference(value: Any) -> bool:
    """Whether a value stands for that of another key."""
    return isinstance(value, str) and value.startswith("${")


def _sampling(given: Mapping[str, Any]) -> dict[str, Any]:
    """Sampling of the agent's calls, while training and while measuring; what changes nothing is left out."""
    neutral = {"top_p": 1, "top_k": -1}

    def of(prefix: str, names: Sequence[str]) -> dict[str, Any]:
        values = {name: given.get(f"{prefix}.{name}") for name in names}
        return {n: value for n, value in values.items() if value is not None and value != neutral.get(n)}

    training = of(_ROLLOUT, ("top_p", "top_k"))
    measuring = of(f"{_ROLLOUT}.val_kwargs", ("temperature", "top_p", "top_k"))
    return ({"sampling_parameters": training} if training else {}) | (
        {"validation_sampling_parameters": measuring} if measuring else {}
    )


def _kl(given: Mapping[str, Any]) -> dict[str, Any]:
    """The KLs; without its switch, a coefficient counts for nothing."""
    options: dict[str, Any] = {}
    if given.get(f"{_ACTOR}.use_kl_loss"):
        options["kl_loss_coefficient"] = given.get(f"{_ACTOR}.kl_loss_coef", 0.001)
        options["kl_loss_type"] = given.get(f"{_ACTOR}.kl_loss_type", "low_var_kl")
    if given.get("algorithm.use_kl_in_reward"):
        options["kl_reward_coefficient"] = given.get("algorithm.kl_ctrl.kl_coef", 0.001)
        options["kl_reward_type"] = given.get("algorithm.kl_penalty", "kl")
    return options


def _reward_model(given: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The reward model, where one is switched on, by its newer or its older keys."""
    for switch, path in (
        ("reward.reward_model.enable", "reward.reward_model.model_path"),
        ("reward_model.enable", "reward_model.model.path"),
    ):
        if given.get(switch):
            if given.get(path) is None:
                return {}, [f"{switch}=True: {path} is not given"]
            return {"reward_model": given[path]}, []
    return {}, []


def _critic(given: Mapping[str, Any], options: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The options of the critic, and what it would have to do otherwise than the actor."""
    found = {option: given[key] for key, option in CRITIC.items() if given.get(key) is not None}
    if given.get("trainer.critic_warmup") is not None:
        found["critic_warmup_steps"] = max(0, given["trainer.critic_warmup"] - 1)
    problems = ["critic.enable=False: gae needs a critic"] if given.get("critic.enable") is False else []
    if given.get("critic.loss_scale_factor") is not None:
        problems.append("critic.loss_scale_factor: seq-mean-token-sum-norm divides by data.max_response_length")
    for key, option in AS_ACTOR.items():
        value = given.get(key)
        if value is None:
            continue
        actors: Any = options.get(option, getattr(VerlConfig, option))
        if option == "lr_warmup_steps":
            value = max(0, value)
        elif option == "loss_normalisation":
            value = LOSS_AGGREGATIONS.get(value, value)
            actors = actors or ("sequence" if options.get("policy_loss") == "gspo" else "token")
        elif option == "mini_batches_per_step":
            actors = options.get("tasks_per_step", VerlConfig.tasks_per_step) // actors
        if value != actors:
            problems.append(f"{key}={given[key]!r}: {option} is the actor's, for the critic too")
    return found, problems


def _without_critic(given: Mapping[str, Any]) -> list[str]:
    """Keys that ask for a critic where there is none."""
    idle = {"algorithm.gamma": 1, "algorithm.lam": 1, "trainer.critic_warmup": 0, "critic.enable": False}
    return [
        f"{key}={given[key]!r}: there is a critic with algorithm.adv_estimator=gae alone"
        for key, value in idle.items()
        if given.get(key) not in (None, value)
    ]


def _correction(given: Mapping[str, Any]) -> dict[str, Any]:
    """The off-policy correction, where it weighs or rejects something."""
    names = ("rollout_is", "rollout_is_threshold", "rollout_rs", "rollout_rs_threshold")
    values = {name: given[f"{_CORRECTION}.{name}"] for name in names if f"{_CORRECTION}.{name}" in given}
    if values.get("rollout_is") is None and values.get("rollout_rs") is None:
        return {}
    options: dict[str, Any] = {"rollout_is": None} | values
    return {"rollout_correction": RolloutCorrection(**options)}
