"""verl's PPO trainer for Ray, with rollouts of agents elsewhere."""

# pyright: reportOptionalMemberAccess=false, reportAttributeAccessIssue=false
# pyright: reportArgumentType=false, reportIndexIssue=false
# verl sets attributes that it declares as None, and its batches are what its annotations leave open.

from __future__ import annotations

import uuid
from collections.abc import Mapping
from pprint import pformat
from typing import Any

import numpy as np
import torch
from verl import DataProto
from verl.trainer.ppo.core_algos import agg_loss
from verl.trainer.ppo.metric_utils import compute_data_metrics, compute_timing_metrics
from verl.trainer.ppo.ray_trainer import RayPPOTrainer, apply_kl_penalty, compute_advantage
from verl.utils.debug import marked_timer
from verl.utils.metric import reduce_metrics

from lightstream.schemas.errors import SettingsError
from lightstream.schemas.interfaces import LightningStore
from lightstream.stream_processors.adapters import TraceToTripletBase

from ..llm_proxy import LLMProxy
from .daemon import AgentModeDaemon

__all__ = ["AgentLightningTrainer"]

NOBODY = "nobody's"
"""Group of the rows that fill up the last mini-batch."""


class AgentLightningTrainer(RayPPOTrainer):  # type: ignore[misc]  # verl has no types
    """A ``RayPPOTrainer`` that has its batches from an :class:`AgentModeDaemon`; all else is verl's.

    Advantages are computed over the rows of all rollouts. Then rows whose prompt was too long are left out, and rows
    without a trained token fill up the last mini-batch, so that none is lost.

    Args:
        store, llm_proxy, adapter: of the daemon.
        daemon_cls: its class.
        options: of ``RayPPOTrainer``. Of its configuration ``agentlightning.port`` and
            ``agentlightning.trace_aggregator`` are for the daemon.

    Raises:
        SettingsError: the advantage needs greedy rollouts beside the sampled ones.
    """

    global_steps: int = 0

    def __init__(
        self,
        store: LightningStore | None,
        llm_proxy: LLMProxy | None,
        adapter: TraceToTripletBase | None,
        daemon_cls: type[AgentModeDaemon] = AgentModeDaemon,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self._be_fed(store, llm_proxy, adapter, daemon_cls)

    def _be_fed(
        self,
        store: LightningStore | None,
        llm_proxy: LLMProxy | None,
        adapter: TraceToTripletBase | None,
        daemon_cls: type[AgentModeDaemon],
    ) -> None:
        config = self.config
        if str(config.algorithm.adv_estimator) == "remax":
            raise SettingsError(
                "remax needs greedy rollouts, which this trainer does not ask for.",
                next_step="lightstream.agl.VERL has algorithm.adv_estimator=remax.",
            )
        own: Mapping[str, Any] = config.get("agentlightning") or {}
        self.trace_aggregator: dict[str, Any] = dict(own.get("trace_aggregator") or {})
        self.agent_mode_daemon = daemon_cls(
            own.get("port"),
            config.actor_rollout_ref.rollout.n,
            train_information={
                "model": config.actor_rollout_ref.model.path,
                "temperature": config.actor_rollout_ref.rollout.temperature,
            },
            tokenizer=self.tokenizer,
            mini_batch_size=config.actor_rollout_ref.actor.ppo_mini_batch_size,
            pad_token_id=self.tokenizer.pad_token_id,
            store=store,
            llm_proxy=llm_proxy,
            adapter=adapter,
            processor=self.processor,
            trace_aggregator=self.trace_aggregator,
        )

    def fit(self) -> None:
        """Train for ``trainer.total_epochs``, or ``trainer.total_training_steps``."""
        from omegaconf import OmegaConf
        from verl.utils.tracking import Tracking

        settings = self.config.trainer
        tracking: Any = Tracking(
            project_name=settings.project_name,
            experiment_name=settings.experiment_name,
            default_backend=settings.logger,
            config=OmegaConf.to_container(self.config, resolve=True),
        )
        self.agent_mode_daemon.start()
        self.global_steps = 0
        self._load_checkpoint()
        self.checkpoint_manager.update_weights(self.global_steps)
        if settings.get("val_before_train", True):
            tracking.log(data=self._validate(), step=self.global_steps)
            if settings.get("val_only", False):
                return
        first_epoch = self.global_steps // len(self.train_dataloader)
        for epoch in range(first_epoch, settings.total_epochs):
            for batch_dict in self.train_dataloader:
                self.global_steps += 1
                metrics = self._train_step(batch_dict) | {"training/epoch": epoch}
                is_last = self.global_steps >= self.total_training_steps
                if settings.save_freq > 0 and (is_last or self.global_steps % settings.save_freq == 0):
                    self._save_checkpoint()
                self.checkpoint_manager.update_weights(self.global_steps)
                if settings.test_freq > 0 and (is_last or self.global_steps % settings.test_freq == 0):
                    metrics |= self._validate()
                tracking.log(data=metrics, step=self.global_steps)
                if is_last:
                    print(f"the last step: {pformat(metrics)}", flush=True)
                    return

    def _validate(self, merged: bool = False) -> dict[str, float]:
        """Roll the validation's samples out, once each."""
        metrics: dict[str, float] = {}
        for batch_dict in self.val_dataloader:
            self._roll_out(DataProto.from_single_dict(batch_dict), is_train=False)
            metrics = self.agent_mode_daemon.get_test_metrics()
            self.agent_mode_daemon.clear_data_and_server()
        return metrics

    def _roll_out(self, batch: DataProto, *, is_train: bool) -> None:
        addresses = self.llm_server_manager.server_addresses
        self.agent_mode_daemon.set_up_data_and_server(batch.non_tensor_batch, addresses, is_train=is_train)
        self.agent_mode_daemon.run_until_all_finished()

    def _train_step(self, batch_dict: dict[str, Any]) -> dict[str, Any]:
        """One step on the samples of ``batch_dict``, without new weights for the model servers."""
        config = self.config
        metrics: dict[str, Any] = {}
        timing: dict[str, float] = {}
        with marked_timer("step", timing):
            with marked_timer("gen", timing):
                self._roll_out(DataProto.from_single_dict(batch_dict), is_train=True)
                prompt_length, response_length = self._lengths()
                batch, data_metrics = self.agent_mode_daemon.get_train_data_batch(prompt_length, response_length, "cpu")
                self.agent_mode_daemon.clear_data_and_server()
                self.checkpoint_manager.sleep_replicas()
            metrics |= data_metrics
            batch.non_tensor_batch["uid"] = batch.non_tensor_batch["data_id_list"]
            batch.meta_info["temperature"] = config.actor_rollout_ref.rollout.temperature
            count = len(batch)
            batch = _filled_up(batch, self._multiple_of)
            batch.meta_info["global_token_num"] = batch.batch["attention_mask"].sum(dim=-1).tolist()
            with marked_timer("old_log_prob", timing):
                known, _ = self._compute_old_log_prob(batch)
                entropy = agg_loss(
                    loss_mat=known.batch.pop("entropys"),
                    loss_mask=batch.batch["response_mask"],
                    loss_agg_mode=config.actor_rollout_ref.actor.loss_agg_mode,
                )
                metrics["actor/entropy"] = entropy.detach().item()
                batch = batch.union(known)
            if self.use_reference_policy:
                batch = batch.union(self._compute_ref_log_prob(batch))
            if self.use_critic:
                batch = batch.union(self._compute_values(batch))
            if config.algorithm.use_kl_in_reward:
                batch, of_kl = apply_kl_penalty(batch, self.kl_ctrl_in_reward, config.algorithm.kl_penalty)
                metrics |= of_kl
            else:
                batch.batch["token_level_rewards"] = batch.batch["token_level_scores"]
            batch = compute_advantage(
                batch,
                adv_estimator=config.algorithm.adv_estimator,
                gamma=config.algorithm.gamma,
                lam=config.algorithm.lam,
                num_repeat=config.actor_rollout_ref.rollout.n,
                norm_adv_by_std_in_grpo=config.algorithm.get("norm_adv_by_std_in_grpo", True),
                config=config.algorithm,
            )
            fits = ~batch.batch["is_drop_mask"]
            metrics["training/n_triplets_prompt_too_long"] = int((~fits).sum())
            batch = _filled_up(batch[:count][fits[:count].numpy()], self._multiple_of)
            batch.meta_info["global_token_num"] = batch.batch["attention_mask"].sum(dim=-1).tolist()
            if self.use_critic:
                metrics |= reduce_metrics(self._update_critic(batch).meta_info["metrics"])
            if config.trainer.critic_warmup < self.global_steps:
                with marked_timer("update_actor", timing):
                    metrics |= reduce_metrics(self._update_actor(batch).meta_info["metrics"])
        metrics |= compute_data_metrics(batch=batch, use_critic=self.use_critic)
        return (
            metrics
            | compute_timing_metrics(batch=batch, timing_raw=timing)
            | {"training/global_step": self.global_steps}
        )

    def _lengths(self) -> tuple[int, int]:
        """Tokens of a row's prompt and response."""
        data, merges = self.config.data, self.trace_aggregator.get("level") == "trajectory"
        own = self.trace_aggregator if merges else {}
        return (
            own.get("trajectory_max_prompt_length") or data.max_prompt_length,
            own.get("trajectory_max_response_length") or data.max_response_length,
        )

    @property
    def _multiple_of(self) -> int:
        """Rows of verl's mini-batch."""
        settings = self.config.actor_rollout_ref
        return int(settings.actor.ppo_mini_batch_size * settings.rollout.n)


def _filled_up(batch: DataProto, multiple: int) -> DataProto:
    """The batch with as many rows as make a multiple: copies of the first, of which no token is trained on."""
    missing = -len(batch) % multiple
    if not missing:
        return batch
    filling = batch[np.zeros(missing, dtype=np.int64)]
    for name in ("response_mask", "token_level_scores", "advantages", "returns"):
        if name in filling.batch:
            filling.batch[name] = torch.zeros_like(filling.batch[name])
    if "uid" in filling.non_tensor_batch:
        filling.non_tensor_batch["uid"] = np.array([f"{NOBODY} {uuid.uuid4()}" for _ in range(missing)], dtype=object)
    return DataProto.concat([batch, filling])
