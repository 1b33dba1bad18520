"""Options as the configuration of verl's own trainer, by its own keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lightstream.schemas.errors import TrainingError

from ..verl_in_process.config import VerlConfig
from ..verl_in_process.model import PRECISIONS
from ..verl_in_process.packed_attention import PACKED_ATTENTION
from ..verl_in_process.verl_keys import defaults_file

__all__ = ["OWN", "TRAINER", "UNLISTED", "new_configuration", "verl_settings"]

TRAINER = "lightstream"
"""Name of our trainer among verl's (``trainer.v1.trainer_mode``), and of the servers that it does not start."""

OWN = "actor_rollout_ref.lightstream"
"""Key of the settings that our worker reads beside verl's own."""

UNLISTED = tuple(f"actor_rollout_ref.{role}.fsdp_config.mixed_precision" for role in ("actor", "ref"))
"""Fields of verl's configurations that its file leaves out."""

_ACTOR, _REF, _MODEL = "actor_rollout_ref.actor", "actor_rollout_ref.ref", "actor_rollout_ref.model"
_ROLLOUT = "actor_rollout_ref.rollout"


def verl_settings(config: VerlConfig, *, folder: Path, device: str, attention: str) -> dict[str, Any]:
    """Every key of verl's that is set, dotted; the others are as in verl's own file.

    Args:
        config: the options.
        folder: the model to begin with.
        device: ``cpu`` or ``cuda``.
        attention: name of the attention, for transformers; rows are packed with :data:`PACKED_ATTENTION`.
    """
    packs = attention == PACKED_ATTENTION
    engines = {
        f"{role}.{key}": value
        for role, stored in ((_ACTOR, "fp32"), (_REF, PRECISIONS[config.dtype]))
        for key, value in {
            "strategy": "fsdp2",
            "use_torch_compile": False,
            "fsdp_config.strategy": "fsdp2",
            "fsdp_config.mixed_precision": {
                "param_dtype": PRECISIONS[config.dtype],
                "reduce_dtype": "fp32",
                "buffer_dtype": "fp32",
            },
            "fsdp_config.model_dtype": stored,
            "fsdp_config.reshard_after_forward": config.processes > 1,  # one shard: nothing to give back
            "fsdp_config.use_torch_compile": False,
        }.items()
    }
    return engines | {
        f"{_ACTOR}.use_dynamic_bsz": True,
        f"{_ACTOR}.ppo_max_token_len_per_gpu": config.tokens_per_micro_batch,
        f"{_ACTOR}.ppo_epochs": 1,  # each epoch has mini-batches of its own, which the trainer lays out
        f"{_ACTOR}.use_kl_loss": config.compares_with_reference,  # what verl has a reference for
        f"{_ACTOR}.grad_clip": config.gradient_norm_max,
        f"{_ACTOR}.optim.lr": config.learning_rate,
        f"{_ACTOR}.optim.weight_decay": config.weight_decay,
        f"{_ACTOR}.optim.clip_grad": config.gradient_norm_max,
        f"{_ACTOR}.optim.lr_warmup_steps": config.lr_warmup_steps,
        f"{_ACTOR}.optim.lr_scheduler_type": config.lr_schedule,
        f"{_ACTOR}.optim.min_lr_ratio": config.learning_rate_min_ratio,
        f"{_ACTOR}.optim.total_training_steps": max(1, config.steps),
        f"{_ACTOR}.optim.override_optimizer_config": {"fused": True},
        f"{_MODEL}.path": str(folder),
        f"{_MODEL}.use_remove_padding": packs,
        f"{_MODEL}.enable_gradient_checkpointing": config.gradient_checkpointing,
        f"{_MODEL}.override_config": {"attn_implementation": attention},
        f"{_ROLLOUT}.name": TRAINER,
        f"{_ROLLOUT}.nnodes": 1,  # verl wants some, though it starts none
        f"{_ROLLOUT}.n": config.rollouts_per_task,
        f"{_ROLLOUT}.temperature": config.temperature,
        "algorithm.adv_estimator": "grpo",  # any that has no critic: advantages are made already
        "critic.enable": False,
        "data.train_batch_size": config.tasks_per_step,
        "reward.num_workers": 0,
        "trainer.device": device,
        "trainer.nnodes": config.nodes,
        "trainer.n_gpus_per_node": config.processes // config.nodes,
        "trainer.resume_mode": "disable",
        "trainer.total_training_steps": config.steps,
        "trainer.v1.trainer_mode": TRAINER,
        "transfer_queue.enable": True,
        "transfer_queue.backend.SimpleStorage.num_data_storage_units": config.nodes,
    }


def new_configuration(settings: dict[str, Any], own: dict[str, Any]) -> Any:
    """verl's configuration, with some keys of its own set, and :data:`OWN`.

    Raises:
        TrainingError: verl has no such key.
    """
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    configuration: Any = OmegaConf.load(defaults_file())
    OmegaConf.set_struct(configuration, True)
    try:
        for key, value in settings.items():
            OmegaConf.update(configuration, key, value, merge=False, force_add=key in UNLISTED)
        OmegaConf.update(configuration, OWN, own, force_add=True)
        OmegaConf.resolve(configuration)
    except OmegaConfBaseException as error:
        raise TrainingError(
            f"verl does not take the configuration: {error}.", next_step="Install verl 0.9.1, which it is made for."
        ) from error
    return configuration
