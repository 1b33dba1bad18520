"""The engine in two halves, as an algorithm of one's own calls them: gradients, and a step of the optimiser."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ...loop.protocols import NothingLearned
from ...rollouts.batch import BatchArrays, Exclusion, token_weights
from .config import GAP_MEASURES, VerlConfig
from .engine import VerlEngine
from .images import ImageReader
from .loss import WeightedPolicyLoss
from .models import actor_config
from .update import gap_told


class PrimitiveEngine:
    """One model with its optimiser, whose gradients are summed up until they are applied.

    Args:
        config, folder, first: as for :class:`VerlEngine`, which loads and saves the model.
    """

    def __init__(self, config: VerlConfig, folder: Path, *, first: Path | None = None) -> None:
        self._engine = VerlEngine(config, folder, first=first)
        self.has_gradients = False
        """Whether some were computed since the last step of the optimiser."""

    @property
    def module(self) -> Any:
        """The model, as verl wraps it."""
        return self._engine.module

    @property
    def images(self) -> ImageReader | None:
        """How the model reads images; ``None``: it takes none."""
        return self._engine.images

    def save_weights(self, folder: Path) -> None:
        """Write model and tokenizer into an empty folder, in the type of the forward pass."""
        self._engine.save_weights(folder)

    def save(self, folder: Path) -> None:
        """Write model, tokenizer, optimiser and random state into an empty folder."""
        self._engine.save(folder)

    def saved_in(self, folder: Path) -> None:
        """The finished name of a folder that :meth:`save` wrote; its unchanging files are shared with the next."""
        self._engine.saved_in(folder)

    def forward_backward(
        self,
        arrays: BatchArrays,
        *,
        loss: str,
        policy_version: int | None,
        seed: Sequence[int],
        gap_max: float = math.inf,
    ) -> dict[str, float]:
        """Add the gradient of a batch; nothing where no row has an advantage and the entropy is no part of the loss.

        Args:
            arrays: N rows, at least one.
            loss: verl's name of the objective.
            policy_version: tokens of this version should have the actor's log-probabilities; ``None``: there are none.
            seed: numbers that dropout follows from.
            gap_max: see :class:`~lightstream.trainers.loop.protocols.Engine`.

        Returns:
            Of the loss, see :meth:`WeightedPolicyLoss.metrics`; ``rows/computed``, ``tokens/computed``,
            ``tokens/padded``.

        Raises:
            SettingsError: the loss has another name than there are, or does not go together with the options.
            NothingLearned: actor and sampler are further apart. All gradients so far are forgotten.
        """
        import torch

        models = self._engine.models
        config = replace(models.config, policy_loss=loss)
        torch.manual_seed(int(np.random.default_rng(list(seed)).integers(2**63)))
        rows = list(range(len(arrays))) if config.trains_every_row else arrays.rows_with_signal.tolist()
        metrics = models.cost(arrays, rows)
        if not rows:
            return metrics
        objective = WeightedPolicyLoss(actor_config(config))
        objective.comparing = policy_version is not None
        weights = token_weights(arrays, config.normalisation, constant_tokens=config.response_tokens_max or 1)
        compared = (arrays.response_mask == 1) & (arrays.policy_versions == policy_version)
        models.actor.worker.set_loss_fn(objective)
        models.actor.add_gradient(models.batch(arrays, compared, weights), arrays, rows)
        self.has_gradients = True
        measured, name = objective.metrics(), GAP_MEASURES[config.dtype]
        if measured[name] > gap_max:
            self.forget_gradients()
            raise NothingLearned(Exclusion.LOGPROB_GAP, gap_told(measured, name, gap_max), metrics | measured)
        return metrics | measured

    def forget_gradients(self) -> None:
        """Drop the gradients so far."""
        self._engine.models.actor.forget_gradients()
        self.has_gradients = False

    def optim_step(self, *, learning_rate: float | None) -> dict[str, float]:
        """Apply the gradients, and forget them. Without any, nothing changes.

        Args:
            learning_rate: ``None``: that of the options.

        Returns:
            ``grad_norm`` before it was bounded, and ``lr``. A norm that is not finite changes nothing.
        """
        models = self._engine.models
        rate = models.config.learning_rate if learning_rate is None else learning_rate
        norm = models.actor.apply_gradients(rate) if self.has_gradients else 0.0
        self.has_gradients = False
        return {"grad_norm": norm, "lr": rate}
