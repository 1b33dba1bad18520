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
    """Rolls out every task, once per epoch, and logs the results. Nothing is trained.

    Args:
        n_epochs: how often.
        train_split: a share, more than 0 and less than 1. The two data sets are split already, so nothing uses it.
        polling_interval: how often the queue is checked while it is full, in seconds; the end of a rollout is seen
            at once.
        max_queue_length: with more rollouts than this in the queue, no other is enqueued.
        span_verbosity: what is logged of each span: the keys of its attributes, their values too, or no span at all.

    Raises:
        ValueError: ``train_split`` is not such a share, ``polling_interval`` not above 0, ``max_queue_length`` below 0.
    """

    def __init__(
        self,
        n_epochs: int = 1,
        *,
        train_split: float = 0.5,
        polling_interval: float = 5.0,
        max_queue_length: int = 4,
        span_verbosity: Verbosity = "keys",
    ) -> None:
        if not 0.0 < train_split < 1.0:
            raise ValueError(f"train_split must be between 0 and 1, not {train_split:g}.")
        if not polling_interval > 0.0:
            raise ValueError(f"polling_interval must be more than 0 seconds, not {polling_interval:g}.")
        if max_queue_length < 0:
            raise ValueError(f"max_queue_length must be at least 0, not {max_queue_length}.")
        self.n_epochs = n_epochs
        self.train_split = train_split
        self.polling_interval = polling_interval
        self.max_queue_length = max_queue_length
        self.span_verbosity = span_verbosity

    async def run(self, train_dataset: Dataset | None = None, val_dataset: Dataset | None = None) -> None:
        store, resources = self.get_store(), self.get_initial_resources()
        named = None if resources is None else (await store.update_resources("default", resources)).resources_id
        given: list[tuple[Literal["train", "val"], Dataset | None]] = [("train", train_dataset), ("val", val_dataset)]
        sets: list[tuple[Literal["train", "val"], Dataset]] = [(m, tasks) for m, tasks in given if tasks is not None]
        for epoch in range(self.n_epochs):
            ends: list[asyncio.Task[None]] = []
            for mode, tasks in sets:
                for index in range(len(tasks)):
                    await self._room(ends)
                    rollout = await store.enqueue_rollout(tasks[index], mode, named)
                    ends.append(asyncio.create_task(self._told(rollout.rollout_id)))
            logger.info("epoch %s of %s: %s rollouts", epoch + 1, self.n_epochs, len(ends))
            await asyncio.gather(*ends)

    async def _room(self, ends: list[asyncio.Task[None]]) -> None:
        """Wait until the queue is short enough. It is checked again when one of ``ends`` comes."""
        store = self.get_store()
        while True:
            waiting = await store.query_rollouts(status_in=["queuing", "requeuing"], limit=self.max_queue_length + 1)
            if len(waiting) <= self.max_queue_length:
                return
            under_way = [end for end in ends if not end.done()]
            if under_way:
                await asyncio.wait(under_way, timeout=self.polling_interval, return_when=asyncio.FIRST_COMPLETED)
            else:  # others' rollouts fill it
                await asyncio.sleep(self.polling_interval)

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
