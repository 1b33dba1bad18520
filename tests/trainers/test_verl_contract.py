"""Every name of verl that is used, replaced or relied on: its signature and fields, so that another verl is noticed."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
from importlib.metadata import version
from typing import Any

import pytest

from lightstream.trainers.engines.verl.runtime import load_verl

pytestmark = pytest.mark.filterwarnings("ignore:Ray state API:DeprecationWarning")  # of what verl imports

PARAMETERS = {
    "verl.workers.engine_workers:TrainingWorker.__init__": ["self", "config"],
    "verl.workers.engine_workers:TrainingWorker.reset": ["self"],
    "verl.workers.engine_workers:TrainingWorker.set_loss_fn": ["self", "loss_fn"],
    "verl.workers.engine_workers:TrainingWorker.train_batch": ["self", "data"],
    "verl.workers.engine_workers:TrainingWorker.infer_batch": ["self", "data"],
    "verl.workers.engine_workers_tinker:TinkerTrainingWorker.forward_backward": ["self", "data"],
    "verl.workers.engine_workers_tinker:TinkerTrainingWorker.optimizer_step": ["self", "optim_step_params"],
    "verl.workers.engine.fsdp.transformer_impl:FSDPEngine.get_per_tensor_param": None,
    "verl.workers.engine.utils:prepare_micro_batches": [
        "data",
        "dp_group",
        "num_batches_divided_by",
        "same_micro_num_in_dp",
        "min_num_micro_batch",
        "use_dynamic_bsz_balance",
    ],
    "verl.utils.torch_functional:logprobs_from_logits_v2": ["logits", "labels"],
    "verl.utils.model:get_hf_auto_model_class": ["hf_config"],
    "verl.utils.model:load_valuehead_model": ["local_path", "torch_dtype", "model_config", "trust_remote_code"],
    "verl.workers.engine.fsdp.transformer_impl:FSDPEngineWithValueHead": None,
    "verl.utils.tensordict_utils:assign_non_tensor": ["tensor_dict", "kwargs"],
    "verl.utils.tensordict_utils:index_select_tensor_dict": ["batch", "indices"],
    "verl.utils.tensordict_utils:get_tensordict": ["tensor_dict", "non_tensor_dict"],
    "verl.utils.tensordict_utils:get_non_tensor_data": ["data", "key", "default"],
    "verl.workers.utils.padding:no_padding_2_padding": ["tensor", "data"],
    "verl.trainer.ppo.core_algos:get_policy_loss_fn": ["name"],
    "verl.trainer.ppo.core_algos:compute_policy_loss_vanilla": [
        "old_log_prob",
        "log_prob",
        "advantages",
        "response_mask",
        "loss_agg_mode",
        "config",
        "rollout_is_weights",
    ],
    "verl.trainer.ppo.core_algos:compute_gae_advantage_return": [
        "token_level_rewards",
        "values",
        "response_mask",
        "gamma",
        "lam",
    ],
    "verl.trainer.ppo.core_algos:kl_penalty": ["logprob", "ref_logprob", "kl_penalty"],
    "verl.utils.metric:Metric.aggregate_dp": None,
}
"""Place -> names of its parameters; ``None``: that it is there is enough."""

FIELDS = {
    "TrainingWorkerConfig": {"model_type", "model_config", "engine_config", "optimizer_config", "checkpoint_config"},
    "HFModelConfig": {
        "path",
        "hf_config_path",
        "tokenizer_path",
        "use_remove_padding",
        "enable_gradient_checkpointing",
        "override_config",
        "lora_rank",
        "lora_alpha",
        "target_modules",
    },
    "FSDPEngineConfig": {
        "strategy",
        "model_dtype",
        "mixed_precision",
        "reshard_after_forward",
        "use_torch_compile",
        "use_dynamic_bsz",
        "max_token_len_per_gpu",
        "infer_max_token_len_per_gpu",
    },
    "FSDPOptimizerConfig": {
        "lr",
        "weight_decay",
        "clip_grad",
        "lr_warmup_steps",
        "lr_scheduler_type",
        "min_lr_ratio",
        "total_training_steps",
        "override_optimizer_config",
    },
    "FSDPActorConfig": {
        "strategy",
        "rollout_n",
        "use_dynamic_bsz",
        "clip_ratio",
        "clip_ratio_low",
        "clip_ratio_high",
        "entropy_coeff",
        "policy_loss",
        "use_kl_loss",
        "kl_loss_coef",
        "kl_loss_type",
        "clip_ratio_c",
    },
}


@pytest.fixture(scope="module", autouse=True)
def loaded() -> None:
    load_verl("cpu")


def test_the_version_is_the_one_that_was_looked_at() -> None:
    assert version("verl") == "0.9.1", "go through the places that this file names, then raise the number"


@pytest.mark.parametrize("place", PARAMETERS)
def test_what_is_called_or_replaced_has_the_parameters_that_it_had(place: str) -> None:
    module, _, path = place.partition(":")
    found: Any = importlib.import_module(module)
    for name in path.split("."):
        found = getattr(found, name)
    expected = PARAMETERS[place]
    if expected is not None:
        assert list(inspect.signature(inspect.unwrap(found)).parameters) == expected


@pytest.mark.parametrize("name", FIELDS)
def test_configurations_have_the_fields_that_are_set(name: str) -> None:
    found = getattr(importlib.import_module("verl.workers.config"), name)
    assert {field.name for field in dataclasses.fields(found)} >= FIELDS[name]
