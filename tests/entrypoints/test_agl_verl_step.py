"""One step of verl's own PPO trainer on a batch of the daemon's; run by `make test-verl-ray`."""

# pyright: reportOptionalMemberAccess=false, reportAttributeAccessIssue=false, reportPrivateUsage=false
# Stands in for parts of verl that need several GPUs, in the middle of its trainer.

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import lightstream.agl as agl
from lightstream.agl.verl import LoadedDataset
from lightstream.runtime.settings import Settings
from lightstream.trainers import make_tiny_model
from lightstream.trainers.engines.verl.runtime import join_process_group, load_verl, worker_environment
from lightstream.trainers.engines.verl.shards import Shard
from lightstream.trainers.engines.verl.verl_keys import defaults_file
from tests.entrypoints.test_agl_verl import span

pytestmark = pytest.mark.verl_ray

FP32 = {"param_dtype": "fp32", "reduce_dtype": "fp32", "buffer_dtype": "fp32"}
ACTOR = "actor_rollout_ref.actor"
PROMPT, SAMPLED = [5, 6, 7], [8, 9]


def configuration(model: Path) -> Any:
    """verl's, for a CPU."""
    from omegaconf import OmegaConf

    made: Any = OmegaConf.load(defaults_file())
    values: dict[str, Any] = {
        "actor_rollout_ref.model.path": str(model),
        "actor_rollout_ref.model.override_config": {"attn_implementation": "sdpa"},
        "actor_rollout_ref.model.enable_gradient_checkpointing": False,
        "actor_rollout_ref.rollout.name": "vllm",
        "actor_rollout_ref.rollout.n": 2,
        "actor_rollout_ref.rollout.log_prob_use_dynamic_bsz": True,
        f"{ACTOR}.ppo_mini_batch_size": 2,
        f"{ACTOR}.use_dynamic_bsz": True,
        f"{ACTOR}.strategy": "fsdp2",
        f"{ACTOR}.use_torch_compile": False,
        f"{ACTOR}.fsdp_config.strategy": "fsdp2",
        f"{ACTOR}.fsdp_config.mixed_precision": FP32,
        f"{ACTOR}.fsdp_config.model_dtype": "fp32",
        f"{ACTOR}.fsdp_config.use_torch_compile": False,
        f"{ACTOR}.optim.lr": 1e-2,
        f"{ACTOR}.optim.total_training_steps": 1,
        "algorithm.adv_estimator": "grpo",
        "critic.enable": False,
        "data.max_prompt_length": 4,
        "data.max_response_length": 4,
        "trainer.device": "cpu",
        "trainer.n_gpus_per_node": 1,
    }
    for key, value in values.items():
        OmegaConf.update(made, key, value, merge=False, force_add=True)
    OmegaConf.resolve(made)
    return made


async def roll_out(store: agl.LightningStore, rewards: list[float | None], turns: list[int]) -> None:
    """Be the Runner and the model: each call says one token more than the one before."""
    for number, (reward, count) in enumerate(zip(rewards, turns, strict=True)):
        rollout = await store.dequeue_rollout()
        assert rollout is not None
        names = (rollout.rollout_id, rollout.attempt.attempt_id)
        for turn in range(1, count + 1):
            attributes = {
                "gen_ai.response.id": f"{number}-{turn}",
                "llm.hosted_vllm.prompt_token_ids": str(PROMPT),
                "llm.hosted_vllm.choices": str([{"token_ids": [*SAMPLED, 10 + number][:turn]}]),
            }
            await store.add_span(span(*names, turn, "raw_gen_ai_request", attributes))
        if reward is not None:
            told = {"agentlightning.reward.0.name": "primary", "agentlightning.reward.0.value": reward}
            await store.add_span(span(*names, 99, "agentlightning.annotation", told))
        await store.update_attempt(*names, status="succeeded" if count else "failed")


def test_a_step_of_verls_trainer_moves_the_weights_towards_what_was_rewarded(tmp_path: Path) -> None:
    load_verl("cpu")
    from transformers import AutoTokenizer
    from verl.utils.dataset.rl_dataset import collate_fn

    from lightstream.agl.verl import AgentLightningTrainer

    model = make_tiny_model(tmp_path / "model")
    config = configuration(Path(model))
    with worker_environment(Shard()):
        join_process_group("cpu", Shard())
        from verl.workers.engine_workers import ActorRolloutRefWorker

        worker = ActorRolloutRefWorker(config=config.actor_rollout_ref, role="actor")
        worker.init_model()

    settings = Settings.load(data_dir=tmp_path, kafka_bootstrap_servers="127.0.0.1:1", proxy_port=0)
    store = agl.InMemoryLightningStore()
    # What Ray would have set up: workers, model servers that have an address, and what gives them weights.
    trainer = object.__new__(AgentLightningTrainer)
    trainer.config = config
    trainer.tokenizer = AutoTokenizer.from_pretrained(model)
    trainer.processor = None
    trainer.actor_rollout_wg = worker
    trainer.use_reference_policy = trainer.use_critic = False
    trainer.llm_server_manager = SimpleNamespace(server_addresses=["127.0.0.1:1"])
    trainer.checkpoint_manager = SimpleNamespace(sleep_replicas=lambda: None)
    trainer.distillation_config = None
    trainer.global_steps = 1
    proxy = agl.LLMProxy(port=0, model_list=[], store=store, settings=settings)
    trainer._be_fed(store, proxy, None, agl.verl.AgentModeDaemon)

    dataset = LoadedDataset([{"question": "a"}, {"question": "b"}])
    batch_dict = collate_fn([dataset[0], dataset[1]])

    def log_prob(tokens: list[int]) -> float:
        """Of an answer after the prompt, by the worker's model."""
        network = worker.actor.engine.module
        with torch.no_grad():
            logits = network(input_ids=torch.tensor([PROMPT + tokens])).logits[0, len(PROMPT) - 1 : -1]
        chosen = torch.tensor(tokens)
        return float(torch.log_softmax(logits.float(), -1).gather(-1, chosen[:, None]).sum())

    before = log_prob([*SAMPLED, 10]), log_prob([*SAMPLED, 11])

    async def both() -> dict[str, Any]:
        step = asyncio.create_task(asyncio.to_thread(trainer._train_step, batch_dict))
        while not await store.query_rollouts():  # noqa: ASYNC110  # another thread enqueues them
            await asyncio.sleep(0.05)
        await roll_out(store, [1.0, 0.0, None, 0.5], [3, 3, 1, 0])
        return await step

    metrics = asyncio.run(both())
    trainer.agent_mode_daemon.close()
    assert metrics["training/n_rollouts"] == 4
    assert metrics["training/n_triplets"] == 7
    assert np.isfinite(metrics["actor/grad_norm"])
    assert metrics["actor/grad_norm"] > 0
    after = log_prob([*SAMPLED, 10]), log_prob([*SAMPLED, 11])
    assert after[0] - before[0] > after[1] - before[1], "what was rewarded became likelier than what was not"
