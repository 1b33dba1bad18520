"""verl's TrainingWorker in this process: update on a batch, save, and load to the bit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ...rollouts.batch import BatchArrays
from . import state
from .adapter_slot import AdapterSlot
from .config import VerlConfig
from .images import ImageReader
from .models import Models
from .plan import plan_update
from .shards import Shard
from .update import Update, kl_to_reference


class VerlEngine:
    """One model with its optimiser; of several policies, an adapter with its optimiser each.

    Args:
        config: see :class:`VerlConfig`.
        folder: a checkpoint of this engine, or a folder with nothing but a model: then the optimiser starts afresh.
        shard: which of the processes that hold the model this is; by default it is the only one.
        first: the run's first weights, which are the reference unless the options name another, and the model that an
            adapter (LoRA) belongs to; ``None``: ``folder``.
        packs: see :class:`Models`.

    Attributes:
        models: actor, reference and critic.
    """

    def __init__(
        self,
        config: VerlConfig,
        folder: Path,
        shard: Shard | None = None,
        *,
        first: Path | None = None,
        packs: bool | None = None,
    ) -> None:
        shard, adapters = shard or Shard(), None
        if config.policies:
            adapters = AdapterSlot(config, first or folder)
            self.models = Models(adapters.config, first or folder, shard, packs=packs)
            adapters.fill(self.models.actor, folder)
        else:
            self.models = Models(config, folder, shard, first=first, packs=packs)
        self._adapters = adapters
        self._folder = folder
        self._update: Update | None = None
        self.models.actor.before_each_step(self._check_gap)

    @property
    def module(self) -> Any:
        """The model, as verl wraps it."""
        return self.models.actor.engine.module

    @property
    def images(self) -> ImageReader | None:
        """How the model reads images; ``None``: it takes none."""
        return self.models.images

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
        """One step of the algorithm on a batch of at least one row.

        Rows without an advantage are not computed, unless the entropy is part of the loss; they count all the same.
        With ``gae``, the advantages are made here, and the critic learns once the actor has. A mini-batch whose
        gradient is not finite changes nothing.

        Args:
            arrays: N rows.
            policy_version: tokens of this version should have the actor's log-probabilities; ``None``: all of them.
            seed: numbers that the order of mini-batches, and dropout, follow from.
            policy: which one learns, of several; every number of the others stays as it is.
            step, gap_max: see :class:`~lightstream.trainers.loop.protocols.Engine`.

        Returns:
            Of the loss, see :meth:`WeightedPolicyLoss.metrics`; ``grad_norm`` and ``lr``; ``rows/computed``,
            ``tokens/computed``, ``tokens/padded`` and ``tokens/distinct`` (of one pass over the batch; see
            :func:`~lightstream.trainers.rollouts.batch.tokens_distinct`). Of a critic: ``critic/vf_loss``,
            ``critic/vf_clipfrac``, ``critic/grad_norm``, ``critic/lr``, and those of :class:`Estimates`. While it
            warms up, of the actor ``logprob_…`` alone. ``updates/not_finite``: how many mini-batches changed nothing.

        Raises:
            KeyError: no policy of that name is trained.
            NothingLearned: the gap is too large, or no mini-batch had a finite gradient. All is as before.
        """
        models = self.models
        if self._adapters is not None:
            self._adapters.use(policy)
        if step is not None:
            models.schedule_at(step - 1)
        plan = plan_update(
            models.config,
            arrays,
            policy_version=policy_version,
            seed=seed,
            critic_learns_alone=models.critic_learns_alone,
        )
        self._update = Update(models, plan, arrays, gap_max)
        try:
            return self._update.run()
        finally:
            self._update = None

    def kl_to_reference(self, arrays: BatchArrays) -> npt.NDArray[np.float64]:
        """See :func:`.update.kl_to_reference`."""
        return kl_to_reference(self.models, arrays)

    def save_weights(self, folder: Path) -> None:
        """Write model and tokenizer into an empty folder, in the type of the forward pass; with policies, each adapter
        into a folder of its name."""
        models = self.models
        if self._adapters is not None:
            self._adapters.save_weights(folder)
            return
        state.save_weights(
            folder,
            models.actor.engine,
            static_files_from=self._folder,
            dtype=models.config.dtype,
            rank=models.shard.rank,
        )

    def save(self, folder: Path) -> None:
        """Write model, tokenizer, optimiser and random state into an empty folder; a critic and policies into folders
        within it."""
        models = self.models
        if self._adapters is not None:
            self._adapters.save(folder)
            return
        shard = models.shard
        state.save(folder, models.actor.engine, static_files_from=self._folder, shard=shard)
        if models.critic is not None:
            (folder / state.CRITIC_FOLDER).mkdir(exist_ok=True)  # whichever process is the first
            state.save(folder / state.CRITIC_FOLDER, models.critic.engine, static_files_from=None, shard=shard)

    def saved_in(self, folder: Path) -> None:
        """The finished name of a folder that :meth:`save` wrote; its unchanging files are shared with the next."""
        self._folder = folder

    def close(self) -> None:
        """Nothing was started."""

    def _check_gap(self) -> None:
        """Called before each step of the actor's optimiser."""
        if self._update is not None:
            self._update.check_gap_in_update()
