"""The models of an engine: actor, reference and critic, each in verl's TrainingWorker, and their losses."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lightstream.schemas.errors import TrainingError

from ...rollouts.batch import BatchArrays, tokens_distinct
from . import state
from .chunked_logits import check_chunks
from .config import VerlConfig, is_url
from .critic import WeightedValueLoss
from .images import ImageReader, RowImages, image_reader, positions_of
from .loss import WeightedPolicyLoss
from .model import PRECISIONS, Outputs, Says, VerlModel, new_worker, schedule_at
from .packing import keeps_rows_apart
from .runtime import choose_device, join_process_group, load_verl, worker_environment
from .shards import Shard, with_idle_row
from .teacher import Teacher
from .tensors import Seen, micro_batches, to_tensordict

NO_DUAL_CLIP = 1e30
"""A bound that no ratio comes to: verl lets it not be switched off, and infinity times an advantage of 0 is NaN."""


class Models:
    """The models of one engine, in this process.

    Args:
        config: see :class:`VerlConfig`.
        folder: a checkpoint of this engine, or a folder with nothing but a model: then the optimiser starts afresh.
        shard: which of the processes that hold the models this is.
        first: the run's first weights, which are the reference unless the options name another, and the model that an
            adapter (LoRA) belongs to; ``None``: ``folder``.
        packs: compute rows one after another instead of padded to one length; ``None``: as the options say, or where
            there is a kernel for it, on a GPU in bfloat16. A model that looks at images, or lets packed rows see each
            other (recurrent and convolution layers do), computes them padded.

    Attributes:
        config, shard: as given.
        device: where they are.
        images: how they read images; ``None``: they take none.
        actor: the model that is trained.
        reference: the frozen one; ``None``: there is none, or it is the actor less its adapter, or ``teacher``.
        teacher: the reference behind a URL.
        critic: ``None`` where advantages are made without.
        loss, value_loss: of actor and critic.
    """

    def __init__(
        self, config: VerlConfig, folder: Path, shard: Shard, *, first: Path | None = None, packs: bool | None = None
    ) -> None:
        import torch

        self.config = config
        self.shard = shard
        self.device = choose_device(config.device)
        if config.threads is not None:
            torch.set_num_threads(config.threads)
        self.images = image_reader(first or folder)
        packs = config.packed_rows if packs is None else packs
        may_pack = self.device == "cuda" and config.dtype == "bfloat16" if packs is None else packs
        self._packs = may_pack and self.images is None
        if config.chunked_logits and self.images is not None:
            raise TrainingError(
                "the logits of a model that looks at images are not computed in chunks.",
                next_step="Leave out chunked_logits, or verl's actor_rollout_ref.model.use_fused_kernels.",
            )
        load_verl(self.device)
        join_process_group(self.device, shard)
        with worker_environment(shard):
            self.actor = self._new_actor(folder, first)
            self.reference = self._new_reference(folder, first)
            self.teacher = Teacher(str(config.reference)) if self._asks_teacher else None
            self.critic = self._new_critic(folder, first)
        self.loss = WeightedPolicyLoss(actor_config(config))
        self.actor.worker.set_loss_fn(self.loss)
        self.value_loss = WeightedValueLoss(config.value_clip)
        if config.lora_rank:
            state.begin_adapter(self.actor.engine)
        state.load(folder, self.actor.engine)
        if self.critic is not None:
            self.critic.worker.set_loss_fn(self.value_loss)
            state.load(folder / state.CRITIC_FOLDER, self.critic.engine)

    def schedule_at(self, position: int) -> None:
        """Have the next update at this place of the schedules, from 0, however many there were before."""
        for model in (self.actor, self.critic):
            if model is not None:
                schedule_at(model.engine, position)

    @property
    def critic_learns_alone(self) -> bool:
        """Whether the critic warms up, at this place of its schedule."""
        return self.critic is not None and self.critic.engine.lr_scheduler.last_epoch < self.config.critic_warmup_steps

    def compare(
        self, arrays: BatchArrays, rows: list[int], compared: npt.NDArray[np.bool_], batch: Any = None
    ) -> Outputs:
        """The actor's log-probabilities of some rows; notes how far some tokens are from the sampler's.

        Args:
            batch: for verl, made of ``arrays``; ``None``: made here.
        """
        outputs = self.actor.infer(self.batch(arrays, compared) if batch is None else batch, arrays, rows)
        self.loss.compare(outputs.table, outputs.rows)
        return outputs

    def reference_logprobs(self, arrays: BatchArrays) -> npt.NDArray[np.float32]:
        """Of the reference, of each response token: of another model, of a server's, or of the actor less its adapter.

        Raises:
            TrainingError: as :meth:`Teacher.logprobs`.
        """
        if self.teacher is not None:
            return self.teacher.logprobs(arrays)
        model = self.reference or self.actor
        with state.without_adapter(model.engine) if model is self.actor else nullcontext():
            return self.of_tokens(model, arrays).astype(np.float32)

    def of_tokens(self, model: VerlModel, arrays: BatchArrays) -> npt.NDArray[np.float64]:
        """A model's values for each response token, float64 (sum R,)."""
        outputs = model.infer(self.batch(arrays), arrays, list(range(len(arrays))))
        return outputs.of_tokens(arrays, self.shard)

    def cost(self, arrays: BatchArrays, computed: list[int]) -> dict[str, float]:
        """Rows and tokens of one pass over some rows."""
        lengths = arrays.lengths[computed].tolist()
        parts = micro_batches(
            lengths,
            self.config.tokens_per_micro_batch,
            packed=self.actor.packs,
            rows_max=self.config.rows_per_micro_batch,
        )
        padded = sum(len(part) * max(lengths[row] for row in part) for part in parts)
        return {
            "rows/computed": float(len(computed)),
            "tokens/computed": float(sum(lengths)),
            "tokens/distinct": float(tokens_distinct(arrays, computed)),
            "tokens/padded": float(sum(lengths) if self.actor.packs else padded),
        }

    def batch(
        self,
        arrays: BatchArrays,
        compared: npt.NDArray[np.bool_] | None = None,
        weights: npt.NDArray[np.float64] | None = None,
        further: Mapping[str, npt.NDArray[np.float32]] | None = None,
    ) -> Any:
        """The batch for verl; where there are several processes, with an idle row at its end."""
        tokens = len(arrays.response_mask)
        compared = np.zeros(tokens, bool) if compared is None else compared
        weights = np.zeros(tokens) if weights is None else weights
        further = further or {}
        if self.shard.count > 1:
            arrays = with_idle_row(arrays)
            # Gradients are averaged over the processes, each of which has its part of the sum.
            weights = np.append(weights * self.shard.count, 0.0)
            compared = np.append(compared, False)
            further = {name: np.append(values, np.float32(0)) for name, values in further.items()}
        seen = None if self.images is None else self._seen(arrays, self.images)
        return to_tensordict(arrays, weights, compared, further, seen, temperature=self.config.temperature)

    def _seen(self, arrays: BatchArrays, reader: ImageReader) -> Seen:
        positions = positions_of(arrays, reader, self.actor.engine.module)
        return Seen(positions, [RowImages(reader, shown, self.device) if shown else None for shown in arrays.images])

    def _new_actor(self, folder: Path, first: Path | None) -> VerlModel:
        model = (first or folder) if self.config.lora_rank else folder
        return self._new_model(self.config, model)

    def _new_reference(self, folder: Path, first: Path | None) -> VerlModel | None:
        """The reference, unless there is none, or it is the actor less its adapter."""
        config = self.config
        if not config.compares_with_reference or (config.lora_rank and config.reference is None) or self._asks_teacher:
            return None
        weights = folder_of_reference(config, first or folder)
        of_reference = replace(config, lora_rank=0, offload_parameters=config.offload_reference)
        return self._new_model(of_reference, weights, stored=PRECISIONS[config.dtype])

    @property
    def _asks_teacher(self) -> bool:
        return self.config.compares_with_reference and is_url(self.config.reference)

    def _new_critic(self, folder: Path, first: Path | None) -> VerlModel | None:
        """The critic of a checkpoint, or a new one; ``None`` where advantages are made without."""
        config = self.config
        if not config.has_critic:
            return None
        saved = folder / state.CRITIC_FOLDER
        begun = Path(config.critic_model or first or folder).expanduser()
        critic = self._new_model(
            replace(config, lora_rank=0, learning_rate=config.critic_learning_rate),
            saved if saved.is_dir() else begun,
            says="values",
            described_in=begun,
        )
        ours, its = (model.engine.model_config.hf_config.vocab_size for model in (self.actor, critic))
        if its != ours:
            raise TrainingError(
                f"the critic {str(begun)!r} has a vocabulary of {its} tokens, and the model one of {ours}.",
                next_step="Name a model with the same tokenizer: VERL(critic_model=...).",
            )
        return critic

    def _new_model(
        self,
        config: VerlConfig,
        folder: Path,
        *,
        stored: str = "fp32",
        says: Says = "log_probs",
        described_in: Path | None = None,
    ) -> VerlModel:
        if (image_reader(described_in or folder) is None) is not (self.images is None):
            raise TrainingError(
                f"of the model and {str(described_in or folder)!r}, one looks at images and the other does not.",
                next_step="Name models of one kind.",
            )
        packs = self._packs
        new = partial(
            new_worker,
            config,
            folder,
            processes=self.shard.count,
            stored=stored,
            says=says,
            described_in=described_in,
        )
        worker = new(packs=packs)
        if packs:
            with worker.engine.eval_mode():
                apart = keeps_rows_apart(worker.engine.module, dtype=config.dtype)
            if not apart:
                packs, worker = False, new(packs=False)
        if config.chunked_logits and says == "log_probs":
            with worker.engine.eval_mode():
                check_chunks(worker.engine.module, dtype=config.dtype)
        return VerlModel(worker, config, self.shard, packs=packs, says=says)


def folder_of_reference(config: VerlConfig, first: Path) -> Path:
    """The folder of the reference policy, where the run's first weights are in ``first``.

    Raises:
        TrainingError: there is none.
    """
    folder = first if config.reference is None else Path(config.reference)
    if not (folder / "config.json").is_file():
        raise TrainingError(
            f"the reference policy {str(folder)!r} is not there.",
            next_step="Restore the folder, or name another checkpoint with VERL(reference=...).",
        )
    return folder


def actor_config(config: VerlConfig) -> Any:
    """verl's configuration of an actor."""
    from verl.workers.config import FSDPActorConfig, PolicyLossConfig

    low, high = config.clip_ratios
    return FSDPActorConfig(
        strategy="fsdp2",
        rollout_n=config.rollouts_per_task,
        use_dynamic_bsz=True,
        clip_ratio=high,
        clip_ratio_low=low,
        clip_ratio_high=high,
        clip_ratio_c=NO_DUAL_CLIP if config.dual_clip is None else config.dual_clip,
        entropy_coeff=config.entropy_coefficient,
        policy_loss=PolicyLossConfig(loss_mode=config.policy_loss),
        use_kl_loss=config.kl_loss_coefficient != 0.0,
        kl_loss_coef=config.kl_loss_coefficient,
        kl_loss_type=config.kl_loss_type,
    )
