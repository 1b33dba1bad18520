"""``VERL(config)`` with what Agent Lightning 0.3's own examples give it, key by key."""

from __future__ import annotations

from typing import Any

import pytest

import lightstream.agl as agl
from lightstream.agl._verl_config import EXAMPLES, OWN_KEYS
from lightstream.agl.document import key_here
from lightstream.schemas.errors import SettingsError
from lightstream.trainers.engines.verl.verl_keys import OPTIONS, READ, verl_defaults

TOOLS: dict[str, Any] = {
    "actor_rollout_ref.rollout.multi_turn.format": "hermes",
    "actor_rollout_ref.rollout.engine_kwargs.vllm.enable_auto_tool_choice": True,
    "actor_rollout_ref.rollout.engine_kwargs.vllm.tool_call_parser": "hermes",
}
OF_ONE: dict[str, dict[str, Any]] = {
    "calc_x": {"trainer.save_freq": 64},
    "spider": {
        "data.train_files": "train.parquet",
        "data.val_files": "test.parquet",
        "data.truncation": "error",
        "actor_rollout_ref.actor.use_torch_compile": False,
        "trainer.save_freq": 256,
        "trainer.device": "npu",
    },
    "rag": {"data.truncation": "error"},
    "chartqa": {
        "data.image_base_dir": "images",
        "data.truncation": "error",
        "actor_rollout_ref.rollout.enable_prefix_caching": True,
        "actor_rollout_ref.rollout.engine_kwargs.vllm.allowed_local_media_path": "images",
    },
    "search_r1": {
        "data.train_files": "train.parquet",
        "data.val_files": "test.parquet",
        "data.truncation": "error",
        "actor_rollout_ref.actor.kl_loss_type": "low_var_kl",
        "actor_rollout_ref.actor.optim.lr_warmup_steps_ratio": 0.95,
        "trainer.save_freq": 10,
        "trainer.default_local_dir": "checkpoints",
    },
}
OF_CALC_X: dict[str, Any] = {
    "actor_rollout_ref.model.lora_rank": 32,
    "agentlightning.trace_aggregator.level": "trajectory",
    "agentlightning.trace_aggregator.trajectory_max_prompt_length": 2048,
    "agentlightning.trace_aggregator.trajectory_max_response_length": 8192,
}
ADAPTER = "actor_rollout_ref.model.lora_adapter_path"


def values_of(name: str) -> dict[str, Any]:
    """The configuration of one example, by dotted key."""
    search, chart = name == "search_r1", name == "chartqa"
    tasks = {"rag": 16, "search_r1": 512}.get(name, 32)
    values: dict[str, Any] = {
        "algorithm.adv_estimator": "grpo",
        "algorithm.use_kl_in_reward": False,
        "data.train_batch_size": tasks,
        "data.max_prompt_length": {"rag": 8192, "search_r1": 6000}.get(name, 4096),
        "data.max_response_length": {"chartqa": 1024, "search_r1": 4096}.get(name, 2048),
        "actor_rollout_ref.rollout.tensor_model_parallel_size": 1,
        "actor_rollout_ref.rollout.n": 5 if search else 4,
        "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu": 1 if chart else 4,
        "actor_rollout_ref.rollout.name": "vllm",
        "actor_rollout_ref.rollout.gpu_memory_utilization": 0.6,
        "actor_rollout_ref.actor.ppo_mini_batch_size": 256 if search else tasks,
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": 4,
        "actor_rollout_ref.actor.optim.lr": 1e-6,
        "actor_rollout_ref.actor.use_kl_loss": search,
        "actor_rollout_ref.actor.kl_loss_coef": 0.001 if search else 0.0,
        "actor_rollout_ref.actor.entropy_coeff": 0,
        "actor_rollout_ref.actor.clip_ratio_low": 0.2,
        "actor_rollout_ref.actor.clip_ratio_high": 0.3,
        "actor_rollout_ref.actor.fsdp_config.param_offload": True,
        "actor_rollout_ref.actor.fsdp_config.optimizer_offload": True,
        "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu": 8,
        "actor_rollout_ref.ref.fsdp_config.param_offload": True,
        "actor_rollout_ref.model.path": "some/model",
        "actor_rollout_ref.model.use_remove_padding": True,
        "actor_rollout_ref.model.enable_gradient_checkpointing": True,
        "trainer.n_gpus_per_node": 8 if search else 1,
        "trainer.nnodes": 1,
        "trainer.val_before_train": not chart,
        "trainer.critic_warmup": 0,
        "trainer.logger": ["console", "wandb"],
        "trainer.project_name": "AgentLightning",
        "trainer.experiment_name": name,
        "trainer.test_freq": 32,
        "trainer.total_epochs": 2,
        "trainer.total_training_steps": 300,
    }
    return values | ({} if chart else TOOLS) | OF_ONE[name]


def nested(dotted: dict[str, Any]) -> dict[str, Any]:
    """As the examples write it."""
    made: dict[str, Any] = {}
    for key, value in dotted.items():
        *path, last = key.split(".")
        inner = made
        for part in path:
            inner = inner.setdefault(part, {})
        inner[last] = value
    return made


@pytest.mark.parametrize("name", OF_ONE)
def test_an_examples_configuration_is_taken(name: str) -> None:
    values = values_of(name)
    verl = agl.VERL(nested(values))
    assert (verl.model, verl.steps, verl.validate_every) == ("some/model", 300, 32)
    assert verl.tasks_per_step == values["data.train_batch_size"]
    assert verl.rollouts_per_task == values["actor_rollout_ref.rollout.n"]
    assert (verl.prompt_tokens_max, verl.learning_rate) == (values["data.max_prompt_length"], 1e-6)
    assert (verl.clip_ratio_low, verl.clip_ratio_high, verl.gradient_checkpointing) == (0.2, 0.3, True)
    search = name == "search_r1"
    assert (verl.kl_loss_coefficient, verl.processes) == ((0.001, 8) if search else (0.0, 1))
    assert (verl.lr_warmup_steps, verl.mini_batches_per_step) == ((285, 2) if search else (0, 1))


def test_the_other_configurations_of_calc_x() -> None:
    verl = agl.VERL(nested(values_of("calc_x") | OF_CALC_X))
    assert (verl.lora_rank, verl.prompt_tokens_max, verl.response_tokens_max) == (32, 10240, 2048)
    with pytest.raises(SettingsError, match=r"lora_adapter_path='some/adapter': an adapter is made anew"):
        agl.VERL(nested(values_of("calc_x") | OF_CALC_X | {ADAPTER: "some/adapter"}))


def test_the_page_names_each_key_of_the_examples_and_no_other() -> None:
    given = {name: {*values_of(name)} for name in OF_ONE}
    given["calc_x"] |= {*OF_CALC_X, ADAPTER}
    listed: dict[str, set[str]] = {name: set() for name in OF_ONE}
    for names, keys in EXAMPLES.items():
        for name in names.split(", "):
            listed[name] |= {*keys}
    assert listed == given


def test_what_the_page_says_of_a_key_is_so() -> None:
    """A key without an effect takes any value; one that is refused none but verl's own."""
    base = {"actor_rollout_ref.model.path": "some/model", "trainer.total_training_steps": 3}
    for key in sorted({key for keys in EXAMPLES.values() for key in keys} - {*OPTIONS, *READ, *OWN_KEYS}):
        if key_here(key).startswith("no effect: "):
            assert agl.VERL(base | {key: "anything"}) == agl.VERL(base), key
        else:
            assert key_here(key).startswith("refused, but for verl's default: "), key
            assert agl.VERL(base | {key: verl_defaults()[key]}) == agl.VERL(base), key
            with pytest.raises(SettingsError, match=key.replace(".", r"\.")):
                agl.VERL(base | {key: "anything"})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"trace_aggregator": {"level": "turn"}}, "level is 'turn'; there are transition and trajectory"),
        ({"trace_aggregator": {"levels": 1}}, r"agentlightning\.trace_aggregator\.levels=1"),
    ],
)
def test_keys_that_agent_lightning_does_not_have_are_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        agl.VERL(nested(values_of("calc_x")) | {"agentlightning": change})


def test_a_share_of_steps_to_warm_up_needs_the_steps() -> None:
    values = values_of("search_r1")
    del values["trainer.total_training_steps"]
    with pytest.raises(SettingsError, match=r"lr_warmup_steps_ratio=0\.95: it is of trainer\.total_training_steps"):
        agl.VERL(nested(values))
