"""verl's own configuration as options: every key of verl's is known here, and those that are not are named."""

from __future__ import annotations

import copy
from fnmatch import fnmatchcase
from typing import Any

import pytest
from omegaconf import OmegaConf

from lightstream.schemas.errors import SettingsError
from lightstream.trainers import VERL, RolloutCorrection
from lightstream.trainers.engines.verl.config import options_of
from lightstream.trainers.engines.verl.verl_keys import (
    HARMLESS,
    OPTIONS,
    READ,
    REFUSED,
    SAME,
    harmless_of,
    options_of_config,
    verl_defaults,
)

CONFIG: dict[str, Any] = {
    "actor_rollout_ref": {"model": {"path": "some/model"}, "actor": {"optim": {"lr": 2e-6}}, "rollout": {"n": 4}},
    "algorithm": {"adv_estimator": "grpo"},
    "data": {"train_batch_size": 32},
    "trainer": {"total_training_steps": 7},
}


def changed(**dotted: Any) -> dict[str, Any]:
    """The configuration, and keys whose dots are written as two underlines."""
    return CONFIG | {name.replace("__", "."): value for name, value in dotted.items()}


def test_each_key_of_verls_is_an_option_harmless_or_refused() -> None:
    assert set(OPTIONS) | set(READ) <= set(verl_defaults())
    assert not set(OPTIONS) & set(READ)
    others = set(verl_defaults()) - set(OPTIONS) - set(READ)
    harmless = {key: pattern for pattern in HARMLESS for key in others if fnmatchcase(key, pattern)}
    refused = others - set(harmless)
    first = {next((pattern for pattern in REFUSED if fnmatchcase(key, pattern)), key) for key in refused}
    assert set(harmless.values()) == set(HARMLESS), "every pattern has a key"
    assert first == set(REFUSED), "every key has a pattern, and every pattern a key"
    assert all([*HARMLESS.values(), *REFUSED.values(), *READ.values()]), "and a reason"


OF_SERVERS_OR_LOADERS = ("actor_rollout_ref.rollout.", "data.", "trainer.", "transfer_queue.", "ray_kwargs.", "reward.")
"""Beginnings of keys of parts of verl's that are not started; all else is of models and their arithmetic."""

MATTERS = (
    *("offload", "chunk", "dtype", "micro", "token_len", "fsdp_size", "kernel", "liger", "mlp", "padding", "prefix"),
    *(
        "shuffle",
        "seed",
        "determinism",
        "pad_to",
        "checkpointing",
        "reshard",
        "prefetch",
        "wrap",
        "no_sync",
        "strategy",
    ),
    *(
        "parallel",
        "dynamic",
        "lora",
        "optim",
        "clip",
        "coef",
        "ratio",
        "loss",
        "epochs",
        "batch",
        "gamma",
        "lam",
        "norm",
    ),
)
"""Parts of names of what bears on memory or mathematics."""


def test_nothing_that_bears_on_memory_or_mathematics_is_without_effect() -> None:
    without_effect = {key for key in set(verl_defaults()) - set(OPTIONS) - set(READ) if harmless_of(key)}
    ours = {key for key in without_effect if not key.startswith(OF_SERVERS_OR_LOADERS) and "profiler" not in key}
    assert not {key for key in ours if any(part in key.rpartition("actor_rollout_ref.")[2] for part in MATTERS)}
    assert ours <= {
        *(f"{name}.checkpoint.{key}" for name in ("actor_rollout_ref.actor", "critic") for key in CHECKPOINT),
        *(f"{name}.fsdp_config.{key}" for name in ("actor_rollout_ref.actor", "actor_rollout_ref.ref") for key in FSDP),
        *(f"critic.fsdp.{key}" for key in FSDP),
        *(f"actor_rollout_ref.{name}.use_torch_compile" for name in ("actor", "ref")),
        *("actor_rollout_ref.actor.calculate_entropy", "actor_rollout_ref.model.use_shm", "critic.model.use_shm"),
        *("actor_rollout_ref.hybrid_engine", "actor_rollout_ref.nccl_timeout"),
        *("algorithm.kl_ctrl.horizon", "algorithm.kl_ctrl.target_kl"),
    }, "a key of verl's that is new is looked at by somebody"


CHECKPOINT = ("save_contents", "load_contents", "async_save", "strict")
FSDP = ("use_orig_params", "use_torch_compile")


def test_each_key_that_is_refused_is_refused_with_its_reason() -> None:
    """With a value that is not verl's default; those that say what another key says are refused where they differ."""
    defaults = verl_defaults()
    for key in sorted(set(defaults) - set(OPTIONS) - set(READ)):
        if harmless_of(key) is not None or key.startswith("critic."):
            continue
        with pytest.raises(SettingsError, match="cannot be followed"):
            options_of_config(CONFIG | {key: "another value"})
    for key in SAME:
        with pytest.raises(SettingsError, match="by another key"):
            options_of_config(CONFIG | {key: "another value"})


def test_the_smallest_bound_of_a_pass_holds() -> None:
    verl = VERL(
        config=changed(
            actor_rollout_ref__actor__ppo_max_token_len_per_gpu=9000,
            actor_rollout_ref__ref__log_prob_max_token_len_per_gpu=8000,
            actor_rollout_ref__actor__ppo_micro_batch_size_per_gpu=4,
            actor_rollout_ref__rollout__log_prob_micro_batch_size_per_gpu=2,
        )
    )
    assert (verl.tokens_per_micro_batch, verl.rows_per_micro_batch) == (8000, 2)


def test_memory_by_verls_keys() -> None:
    keys = {
        "actor_rollout_ref.model.use_fused_kernels": True,
        "actor_rollout_ref.model.use_remove_padding": True,
        "actor_rollout_ref.actor.fsdp_config": {"param_offload": True, "optimizer_offload": True, "dtype": "bfloat16"},
        "actor_rollout_ref.ref.fsdp_config": {"param_offload": True, "dtype": "bfloat16"},
    }
    verl = VERL(config=CONFIG | keys)
    assert (verl.chunked_logits, verl.packed_rows, verl.dtype) == (True, True, "bfloat16")
    assert (verl.offload_parameters, verl.offload_optimizer, verl.offload_reference) == (True, True, True)
    assert VERL(**options_of(verl.as_json())) == verl


def test_the_options_are_there() -> None:
    assert set(OPTIONS.values()) <= set(options_of(VERL(model="m", steps=1).as_json()))


def test_nested_dotted_and_omegaconfs_are_the_same() -> None:
    expected = VERL(model="some/model", steps=7, tasks_per_step=32, rollouts_per_task=4, learning_rate=2e-6)
    dotted = {
        "actor_rollout_ref.model.path": "some/model",
        "actor_rollout_ref.actor": {"optim.lr": 2e-6},
        "actor_rollout_ref.rollout.n": 4,
        "data.train_batch_size": 32,
        "trainer.total_training_steps": 7,
    }
    assert VERL(config=CONFIG) == VERL(config=dotted) == VERL(config=OmegaConf.create(CONFIG)) == expected
    assert VERL(**options_of(VERL(config=CONFIG).as_json())) == expected


def test_options_beside_the_configuration() -> None:
    verl = VERL(engine="ray", config=CONFIG, device="cpu", sampling_parameters={"max_tokens": 4})
    assert (verl.engine, verl.device, verl.processes, verl.steps) == ("ray", "cpu", 1, 7)
    assert VERL(config=changed(trainer__nnodes=2, trainer__n_gpus_per_node=4)).processes == 8
    with pytest.raises(SettingsError, match=r"learning_rate is 0\.001, but 2e-06 by its configuration"):
        VERL(config=CONFIG, learning_rate=1e-3)
    with pytest.raises(SettingsError, match="engine is 'process'; there are auto, ray"):
        VERL(config=changed(trainer__nnodes=2), engine="process")


def test_kls_estimators_objectives_and_adapters_by_verls_keys() -> None:
    changed = copy.deepcopy(CONFIG)
    changed["algorithm"] |= {"adv_estimator": "rloo", "use_kl_in_reward": True, "kl_penalty": "low_var_kl"}
    changed["algorithm"]["kl_ctrl"] = {"type": "fixed", "kl_coef": 0.02}
    changed["actor_rollout_ref"]["actor"] |= {"use_kl_loss": True, "kl_loss_coef": 0.05, "kl_loss_type": "k2"}
    changed["actor_rollout_ref"]["actor"]["policy_loss"] = {"loss_mode": "gspo"}
    changed["actor_rollout_ref"]["model"] |= {"lora_rank": 8, "lora_alpha": 32, "target_modules": ["q_proj"]}
    verl = VERL(config=changed)
    assert (verl.advantage, verl.policy_loss) == ("rloo", "gspo")
    assert (verl.kl_loss_coefficient, verl.kl_loss_type) == (0.05, "k2")
    assert (verl.kl_reward_coefficient, verl.kl_reward_type) == (0.02, "low_var_kl")
    assert (verl.lora_rank, verl.lora_alpha, verl.lora_target_modules) == (8, 32, ["q_proj"])
    without = VERL(config=CONFIG)
    assert (without.kl_loss_coefficient, without.kl_reward_coefficient, without.lora_rank) == (0.0, 0.0, 0)


def test_a_critic_by_verls_keys() -> None:
    critic: dict[str, Any] = {
        "critic": {
            "enable": True,
            "cliprange_value": 0.2,
            "optim": {"lr": 3e-5, "weight_decay": 0.02, "clip_grad": 0.5, "lr_warmup_steps": -1},
            "model": {"path": "a/critic", "use_remove_padding": True},
            "ppo_epochs": 2,
            "ppo_mini_batch_size": 8,
            "ppo_max_token_len_per_gpu": 4096,
            "loss_agg_mode": "seq-mean-token-mean",
            "loss_scale_factor": None,
        },
        "actor_rollout_ref.actor.optim": {"weight_decay": 0.02, "clip_grad": 0.5, "lr": 2e-6},
        "actor_rollout_ref.actor": {"ppo_epochs": 2, "ppo_mini_batch_size": 8, "loss_agg_mode": "seq-mean-token-mean"},
        "actor_rollout_ref": {"model": {"path": "some/model"}, "rollout": {"n": 4}},
        "trainer.critic_warmup": 3,
    }
    verl = VERL(config=changed(algorithm={"adv_estimator": "gae", "gamma": 0.99, "lam": 0.95}) | critic)
    assert (verl.advantage, verl.gamma, verl.lam, verl.value_clip) == ("gae", 0.99, 0.95, 0.2)
    assert (verl.critic_model, verl.critic_learning_rate, verl.critic_warmup_steps) == ("a/critic", 3e-5, 2)
    assert (verl.epochs_per_step, verl.mini_batches_per_step, verl.loss_normalisation) == (2, 4, "sequence")
    assert VERL(**options_of(verl.as_json())) == verl
    del critic["trainer.critic_warmup"], critic["critic"]["enable"]
    without = VERL(config=changed() | critic)
    assert (without.advantage, without.critic_model) == ("grpo", None), "as in verl, a critic that is not needed"
    plain = VERL(config=changed(algorithm={"adv_estimator": "gae"}))
    assert (plain.gamma, plain.lam, plain.critic_warmup_steps, plain.value_clip) == (1.0, 1.0, 0, 0.5)


def test_sampling_correction_and_schedule() -> None:
    verl = VERL(
        config=changed(
            actor_rollout_ref__rollout__val_kwargs={"temperature": 0, "top_p": 1.0, "top_k": -1, "n": 3},
            actor_rollout_ref__rollout__top_p=1.0,
            algorithm__rollout_correction={"rollout_is": "sequence", "rollout_is_threshold": 3.0},
            actor_rollout_ref__actor__optim__lr_scheduler_type="cosine",
            actor_rollout_ref__actor__optim__lr_warmup_steps=-1,
            actor_rollout_ref__actor__clip_ratio=0.1,
            actor_rollout_ref__actor__clip_ratio_high=0.3,
            trainer__test_freq=5,
        )
    )
    assert (verl.validation_sampling_parameters, verl.validation_samples) == ({"temperature": 0}, 3)
    assert verl.rollout_correction == RolloutCorrection(rollout_is="sequence", rollout_is_threshold=3.0)
    assert (verl.lr_schedule, verl.lr_warmup_steps, verl.validate_every) == ("cosine", 0, 5)
    assert (verl.clip_ratio_low, verl.clip_ratio_high) == (0.1, 0.3)


def test_epochs_are_steps_once_the_tasks_are_known() -> None:
    verl = VERL(model="m", epochs=3, tasks_per_step=32)
    assert (verl.of_tasks(100).steps, verl.of_tasks(100).epochs) == (9, None)
    assert VERL(config=changed(trainer__total_epochs=3)).of_tasks(100).steps == 7
    with pytest.raises(SettingsError, match="31 tasks are fewer than a step takes, 32"):
        verl.of_tasks(31)
    mistakes: list[dict[str, Any]] = [{"steps": 3, "epochs": 1}, {}, {"epochs": 0}]
    for wrong in mistakes:
        with pytest.raises(SettingsError, match="total_epochs"):
            VERL(model="m", **wrong)
    with pytest.raises(SettingsError, match="no model"):
        VERL(steps=1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"actor_rollout_ref__actor__optim__lrate": 1.0}, r"the nearest is actor_rollout_ref\.actor\.optim\.lr\)"),
        ({"actor_rollout_ref__rollout__n__m": 1}, r"rollout\.n\.m is no key of verl's"),
        ({"data": {"train_batch_size": 32}, "data__train_batch_size": 16}, "train_batch_size is given twice"),
        ({"actor_rollout_ref__actor__grad_clip": 1, "actor_rollout_ref__actor__optim__clip_grad": 2}, "another key"),
        ({"data__train_files": "x.parquet"}, r"data\.train_files='x\.parquet': tasks are handed to fit"),
        ({"critic__enable": True}, r"critic\.enable=True: there is a critic with algorithm\.adv_estimator=gae alone"),
        ({"algorithm__lam": 0.95}, r"algorithm\.lam=0\.95: there is a critic with"),
        ({"algorithm__adv_estimator": "opo"}, "adv_estimator='opo': there are grpo"),
        ({"algorithm__adv_estimator": "gae", "critic__enable": False}, "gae needs a critic"),
        ({"algorithm__adv_estimator": "gae", "critic__ppo_epochs": 2}, "ppo_epochs=2: epochs_per_step is the actor's"),
        ({"algorithm__adv_estimator": "gae", "critic__optim__betas": [0.5, 0.9]}, "AdamW is what there is"),
        ({"algorithm__adv_estimator": "gae", "critic__model__lora_rank": 8}, "the critic is trained whole"),
        (
            {"algorithm__kl_ctrl": {"type": "adaptive"}},
            r"algorithm\.kl_ctrl\.type='adaptive': the coefficient is fixed",
        ),
        ({"actor_rollout_ref__model__override_config__attn": "x"}, r"override_config\.attn='x'"),
        ({"actor_rollout_ref__rollout__top_p": 0.9}, "sampling_parameters have top_p"),
        ({"actor_rollout_ref__actor__ppo_mini_batch_size": 5}, "32 is not a multiple of ppo_mini_batch_size 5"),
        ({"actor_rollout_ref__actor__loss_agg_mode": "mean"}, "loss_agg_mode='mean': there are token-mean"),
        (
            {"algorithm__adv_estimator": "reinforce_plus_plus", "algorithm__use_kl_in_reward": True},
            "use_kl_in_reward=True with reinforce_plus_plus",
        ),
    ],
)
def test_what_has_no_counterpart_is_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        VERL(config=changed(**change))


def test_verls_defaults_are_taken_where_they_ask_for_nothing() -> None:
    verl = VERL(
        config=changed(
            actor_rollout_ref__rollout={"n": 4, "mode": "async"},
            algorithm__kl_ctrl__type="fixed",
            critic__enable=None,
            trainer__critic_warmup=0,
            actor_rollout_ref__rollout__engine_kwargs__vllm__max_model_len=4096,
        )
    )
    assert verl == VERL(config=CONFIG)


def test_what_would_split_a_model_otherwise_is_refused() -> None:
    fsdp2 = {"actor_rollout_ref.actor.strategy": "fsdp2", "actor_rollout_ref.ref.ulysses_sequence_parallel_size": 1}
    assert VERL(config=CONFIG | fsdp2) == VERL(config=CONFIG)
    with pytest.raises(SettingsError, match=r"actor\.strategy='megatron': FSDP shards"):
        VERL(config=changed(actor_rollout_ref__actor__strategy="megatron"))
    with pytest.raises(SettingsError, match=r"ulysses_sequence_parallel_size=4: no sequence is split"):
        VERL(config=changed(actor_rollout_ref__actor__ulysses_sequence_parallel_size=4))
