"""Algorithms that end soon."""

from __future__ import annotations

import asyncio
import logging
from typing import Literal

from lightstream.schemas.types import Rollout
from lightstream.trainers.tasks import Dataset

from .base import Algorithm

__all__ = ["Baseline", "FastAlgorithm"]

logger = logging.getLogger(__name__)

Verbosity = Literal["keys", "key_values", "none"]


class FastAlgorithm(Algorithm):
    """One that ends soon, so that ``Trainer.dev`` may run it."""


class Baseline(FastAlgorithm):
    """Rolls every task out, once per epoch, and logs what came of it. Nothing is trained.

    Args:
        n_epochs: how often.
        span_verbosity: what is logged of each span: the keys of its attributes, their values too, or no span at all.
    """

    def __init__(self, n_epochs: int = 1, *, span_verbosity: Verbosity = "keys") -> None:
        self.n_epochs = n_epochs
        self.span_verbosity = span_verbosity

    async def run(self, train_dataset: Dataset | None = None, val_dataset: Dataset | None = None) -> None:
        store, resources = self.get_store(), self.get_initial_resources()
        named = None if resources is None else (await store.update_resources("default", resources)).resources_id
        sets: list[tuple[Literal["train", "val"], Dataset | None]] = [("train", train_dataset), ("val", val_dataset)]
        for epoch in range(self.n_epochs):
            enqueued = [
                await store.enqueue_rollout(tasks[index], mode, named)
                for mode, tasks in sets
                if tasks is not None
                for index in range(len(tasks))
            ]
            logger.info("epoch %s of %s: %s rollouts", epoch + 1, self.n_epochs, len(enqueued))
            ends = [self._told(rollout.rollout_id) for rollout in enqueued]
            await asyncio.gather(*ends)

    async def _told(self, rollout_id: str) -> None:
        """Wait for a rollout and log it."""
        store = self.get_store()
        ended: list[Rollout] = await store.wait_for_rollouts(rollout_ids=[rollout_id])
        spans = list(await store.query_spans(rollout_id, "latest"))
        logger.info("rollout %s: %s, %s spans", rollout_id, ended[0].status if ended else "gone", len(spans))
        if self.span_verbosity != "none":
            for span in spans:
                told = span.attributes if self.span_verbosity == "key_values" else sorted(span.attributes)
                logger.info("rollout %s: span %s, %s: %s", rollout_id, span.sequence_id, span.name, told)
        if self._adapter is not None and spans:
            logger.info("rollout %s, adapted: %s", rollout_id, self._adapter.adapt(spans))
