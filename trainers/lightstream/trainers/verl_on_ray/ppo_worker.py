"""verl's worker for actor and reference, with weights and checkpoints as our engines have them."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import torch
from transformers.utils import logging as transformers_logging

from ..verl_in_process import state
from ..verl_in_process.model import schedule_at
from ..verl_in_process.packed_attention import add_packed_attention
from ..verl_in_process.runtime import choose_device, join_process_group, load_verl
from ..verl_in_process.shards import Shard

DEVICE = choose_device("auto")  # Ray shows a process the GPU that it was given, or none
load_verl(DEVICE)  # before the modules below ask verl which platform this is

from verl.single_controller.base.decorator import Dispatch, register  # noqa: E402  # see above
from verl.workers.engine_workers import ActorRolloutRefWorker  # noqa: E402

__all__ = ["LightstreamWorker"]

_Method = TypeVar("_Method", bound=Callable[..., Any])


def _in_each(method: _Method) -> _Method:
    """Have verl call a method in each process, with the same arguments, and return what each returned."""
    untyped: Any = register
    modes: Any = Dispatch  # which has its names when it is run
    registered: _Method = untyped(dispatch_mode=modes.ONE_TO_ALL)(method)
    return registered


class LightstreamWorker(ActorRolloutRefWorker):  # type: ignore[misc]  # verl has no types
    """verl's, in one of the processes that hold a model. Each method is called in all of them at the same time.

    Args:
        config: ``actor_rollout_ref`` of verl's configuration, with what :data:`.ppo_settings.OWN` says.
        role: ``actor`` or ``ref``, by verl's names.
        distillation_config: verl's; there is none.
    """

    def __init__(self, config: Any, role: str, distillation_config: Any = None, **others: Any) -> None:
        config = copy.deepcopy(config)  # verl changes it, and gives one object to both roles
        self._own = own = config.lightstream
        if role == "ref":
            config.model.path = own.reference
        untyped_logging: Any = transformers_logging
        untyped_logging.disable_progress_bar()
        add_packed_attention()
        if own.threads is not None:
            torch.set_num_threads(own.threads)
        super().__init__(config, role, distillation_config, **others)
        self._shard = Shard(self.rank, self.world_size, f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}")
        join_process_group(DEVICE, self._shard)

    @property
    def _actor(self) -> Any:
        """The worker within, which verl makes by ``init_model``."""
        return self.actor

    @_in_each
    def load(self, folder: str) -> None:
        """Take optimiser, schedule and random state of a checkpoint, whose weights the actor has."""
        state.load(Path(folder), self._actor.engine)

    @_in_each
    def save(self, folder: str, static_files_from: str) -> None:
        """Write a checkpoint, as :func:`.state.save` does; it belongs to no number of processes."""
        state.save(Path(folder), self._actor.engine, static_files_from=Path(static_files_from), rank=self.rank)

    @_in_each
    def save_weights(self, folder: str, static_files_from: str) -> None:
        """Write a model for servers, as :func:`.state.save_weights` does."""
        state.save_weights(
            Path(folder),
            self._actor.engine,
            static_files_from=Path(static_files_from),
            dtype=self._own.dtype,
            rank=self.rank,
        )

    @_in_each
    def start_step(self, seed: int, comparing: bool, position: int | None) -> None:
        """Begin an update: forget the last one's sums. ``comparing``: sum up how far actor and sampler are apart.

        ``position``: where the schedule is, see :func:`schedule_at`.
        """
        torch.manual_seed(seed)
        if position is not None:
            schedule_at(self._actor.engine, position)
        self._actor.loss_fn.start_step()
        self._actor.loss_fn.comparing = comparing

    @_in_each
    def finish_step(self) -> dict[str, float]:
        """Return what the loss has to say of the update, over all processes: the same in each."""
        self._actor.loss_fn.comparing = False
        self._actor.loss_fn.add_up(self._shard)
        metrics: dict[str, float] = self._actor.loss_fn.metrics()
        return metrics
