"""verl's own trainer for Ray as an engine: its pools, workers and transport, between our rows and our weights."""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lightstream.schemas.distribution import install_hint
from lightstream.schemas.errors import TrainingError

from ..batch import BatchArrays, Exclusion, tokens_distinct
from ..loop.options import GAP_ADVICE
from ..protocols import NothingLearned
from ..verl_in_process.config import GAP_MEASURES, VerlConfig
from ..verl_in_process.engine import actor_config, folder_of_reference, gap_told
from ..verl_in_process.images import image_reader
from ..verl_in_process.loss import WeightedPolicyLoss
from ..verl_in_process.model import attention_in
from ..verl_in_process.packed_attention import PACKED_ATTENTION
from ..verl_in_process.packing import is_known_to_keep_rows_apart
from ..verl_in_process.runtime import choose_device, load_verl, worker_environment
from ..verl_in_process.shards import Shard
from .engine import START_AGAIN, import_ray, join_ray
from .ppo_settings import new_configuration, verl_settings

__all__ = ["PPOTrainerEngine"]

QUEUE = ("TransferQueueController", "transfer_queue")
"""Name and namespace of what keeps a cluster's TransferQueue."""


class PPOTrainerEngine:
    """One model with its optimiser, in verl's ``PPOTrainer``, which runs in this process and has workers on Ray.

    An update is a step of that trainer. When it has returned, the loop commits it and has the servers take the
    weights.

    Args:
        config: see :class:`VerlConfig`.
        folder: as for :class:`.engine.RayEngine`.
        first: as for :class:`.engine.RayEngine`.

    Raises:
        TrainingError: Ray or TransferQueue is not installed, the cluster has too little room or has such a trainer
            already, the model takes images or does not load.
    """

    def __init__(self, config: VerlConfig, folder: Path, *, first: Path | None = None) -> None:
        self._ray = import_ray()
        self._queue = _import_queue()
        self._config = config
        self._folder = folder
        self._device = choose_device(config.device)
        self.images = None
        if image_reader(first or folder) is not None:
            raise TrainingError(
                f'the model {str(first or folder)!r} takes images, which engine="verl" does not.',
                next_step='Take engine="ray".',
            )
        self._trainer: Any = None
        self._queue_started = False
        # Beside the model's processes: one that keeps the queue, one on each machine that stores it, verl's router.
        self._started_here = join_ray(self._ray, config.processes, self._device, further=config.nodes + 2)
        try:
            self._start(first or folder)
        except BaseException:
            self.close()
            raise

    def update(
        self,
        arrays: BatchArrays,
        *,
        policy_version: int | None = None,
        seed: Sequence[int] = (0,),
        policy: str = "",
        step: int | None = None,
        gap_max: float = math.inf,
    ) -> dict[str, float]:
        """As :meth:`VerlEngine.update`; ``tokens/padded`` is not known.

        Raises:
            TrainingError: a process died, or failed; or actor and sampler were too far apart, which is seen once verl
                has moved the weights. The engine is closed; nothing was written.
            NothingLearned: no gradient was finite. The engine is as before.
        """
        from .ppo_trainer import Step

        rows = range(len(arrays)) if self._config.trains_every_row else arrays.rows_with_signal.tolist()
        computed = sorted(rows)
        trained = arrays.response_mask == 1
        compared = trained if policy_version is None else trained & (arrays.policy_versions == policy_version)
        cost = {
            "rows/computed": float(len(computed)),
            "tokens/computed": float(arrays.lengths[computed].sum()),
            "tokens/distinct": float(tokens_distinct(arrays, computed)),
        }
        if not computed:
            return cost | WeightedPolicyLoss(actor_config(self._config)).metrics()
        with self._errors_named():
            made = Step(arrays, computed, compared, tuple(seed), cost)
            found: dict[str, float] = self._running.train(made, None if step is None else step - 1)
        name = GAP_MEASURES[self._config.dtype]
        if found[name] > gap_max:
            self.close()
            raise TrainingError(f"{gap_told(found, name, gap_max)}.", next_step=GAP_ADVICE)
        if not math.isfinite(found["grad_norm"]):
            raise NothingLearned(Exclusion.NOT_FINITE, "the gradient is not finite", found)
        return found

    def kl_to_reference(self, arrays: BatchArrays) -> npt.NDArray[np.float64]:
        """As :meth:`VerlEngine.kl_to_reference`."""
        import torch
        import verl.trainer.ppo.core_algos as algorithms

        untyped: Any = algorithms
        with self._errors_named():
            reference = torch.from_numpy(self._running.reference_logprobs(arrays))
        sampled = torch.from_numpy(arrays.response_logprobs.astype(np.float64))
        kl: npt.NDArray[np.float64] = untyped.kl_penalty(sampled, reference, self._config.kl_reward_type).numpy()
        return np.where(arrays.response_mask == 1, kl, 0.0)

    def save_weights(self, folder: Path) -> None:
        """As :meth:`VerlEngine.save_weights`."""
        with self._errors_named():
            self._running.actor_rollout_wg.save_weights(str(folder), str(self._folder))

    def save(self, folder: Path) -> None:
        """As :meth:`VerlEngine.save`. Another number of processes, and each other engine, can go on from it."""
        with self._errors_named():
            self._running.actor_rollout_wg.save(str(folder), str(self._folder))

    def saved_in(self, folder: Path) -> None:
        """As :meth:`VerlEngine.saved_in`."""
        self._folder = folder

    def close(self) -> None:
        """End verl's processes, and Ray if it was started here. May be called again."""
        if self._trainer is not None:
            trainer, self._trainer = self._trainer, None
            trainer.close()
        if self._queue_started:
            self._queue_started = False
            self._queue.close()
        if self._started_here:
            self._started_here = False
            self._ray.shutdown()

    def _start(self, first: Path) -> None:
        config = self._config
        load_verl(self._device)
        from .ppo_trainer import LightstreamTrainer

        try:
            self._ray.get_actor(QUEUE[0], namespace=QUEUE[1])
        except ValueError:
            pass  # there is none
        else:
            raise TrainingError(
                "this Ray cluster has a TransferQueue already, of another training.",
                next_step="Wait until it has ended, or name another cluster with RAY_ADDRESS.",
            )
        may_pack = self._device == "cuda" and config.dtype == "bfloat16"
        packs = may_pack and is_known_to_keep_rows_apart(self._folder)
        attention = PACKED_ATTENTION if packs else attention_in(self._folder)
        settings = verl_settings(config, folder=self._folder, device=self._device, attention=attention)
        own = {
            "reference": str(folder_of_reference(config, first)) if config.compares_with_reference else None,
            "threads": config.threads,
            "dtype": config.dtype,
        }
        configuration = new_configuration(settings, own)
        with worker_environment(Shard()):  # for its silence, and for what verl sets
            self._queue_started = True
            self._queue.init(configuration.transfer_queue)
            loss = WeightedPolicyLoss(actor_config(config))
            untyped: Any = LightstreamTrainer  # which verl's decorator takes for any trainer
            self._trainer = untyped(configuration, config, str(self._folder), loss)
            with self._errors_named():
                self._trainer.init()

    @property
    def _running(self) -> Any:
        if self._trainer is None:
            raise TrainingError("the training processes have ended.", next_step=START_AGAIN)
        return self._trainer

    @contextmanager
    def _errors_named(self) -> Generator[None]:
        """Have an error of a process end them all, as others wait for it; and say what happened."""
        try:
            yield
        except self._ray.exceptions.RayActorError as error:
            self.close()
            raise TrainingError("a training process died.", next_step=START_AGAIN) from error
        except self._ray.exceptions.RayTaskError as error:
            self.close()
            if isinstance(error.cause, TrainingError):
                raise error.cause from error
            raise TrainingError(
                f"a training process failed: {type(error.cause).__name__}: {error.cause}.", next_step=START_AGAIN
            ) from error


def _import_queue() -> Any:
    try:
        import transfer_queue  # pyright: ignore[reportMissingImports]  # in an environment of its own
    except ModuleNotFoundError as error:
        raise TrainingError(
            "TransferQueue is not installed, which verl's own trainer needs.",
            next_step=f'Install it with {install_hint("verl-ray")}, or take engine="ray", which needs none.',
        ) from error
    return transfer_queue
