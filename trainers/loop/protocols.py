"""The parts of a training loop beside its rollouts. None knows the others, and each has more than one form.

| part | forms |
|---|---|
| :class:`Ledger` | ``ledger.kafka.KafkaLedger``, ``ledger.MemoryLedger`` |
| :class:`Engine` | ``engines.verl.engine.VerlEngine``, ``engines.ray.RayEngine`` |
| :class:`PolicyServers` | ``servers.following.FollowingServers`` and ``NoServers``, ``servers.vllm.VllmServers`` |
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from lightstream.schemas.records import ResourcesRecord

from ..rollouts.batch import BatchArrays, Exclusion, ImageCheck
from ..run.history import History, StepCommit


class NothingLearned(Exception):  # noqa: N818  # an outcome of an update, and no error of the program
    """An engine did not learn from a batch, and its weights and optimiser are as before.

    Args:
        reason: ``logprob_gap`` or ``not_finite``.
        cause: what was seen, in words.
        metrics: what was measured until then.
    """

    def __init__(self, reason: Exclusion, cause: str, metrics: Mapping[str, float]) -> None:
        super().__init__(reason, cause, metrics)
        self.reason = reason
        self.cause = cause
        self.metrics = dict(metrics)

    def __str__(self) -> str:
        return self.cause


class Ledger(Protocol):
    """A log of consumed groups and committed steps. The only writer of its run."""

    def open(self) -> History:
        """Return how far the run got, once nobody else can write to it. What is committed later is added to it.

        Raises:
            TrainingError: the ledger contradicts itself, belongs to another run, or may not be written.
        """
        ...

    def publish_resources(self, record: ResourcesRecord) -> None:
        """Make resources visible that belong to no step (version 0)."""
        ...

    def commit(self, commit: StepCommit) -> None:
        """Make a step, its inputs and its resources visible, together or not at all.

        Raises:
            TrainingError: it is not committed, or nobody knows: the next :meth:`open` shows it.
        """
        ...

    def released(self) -> Collection[str]:
        """The addresses of the run's checkpoints that a release serves. They must not be deleted.

        Raises:
            ServiceUnavailableError: Kafka does not answer.
        """
        ...

    def close(self) -> None:
        """Release everything that was opened. Everything committed is durable already."""
        ...


class Engine(Protocol):
    """One model with its optimiser, and a critic where there is one: advantages or rewards in, weights out."""

    @property
    def images(self) -> ImageCheck | None:
        """The model's view of calls with images; ``None``: it takes none."""
        ...

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
        """Learn from a batch of at least one row; returns metrics.

        Args:
            arrays: N rows, with an advantage for each token; with ``gae``, a reward, of which it makes advantages.
            policy_version: which version the weights are; ``None``: every token is of it.
            seed: numbers that everything random follows from.
            policy: which one learns, of several that share the model; the others stay as they are.
            step: 1, 2, …: where schedules are; ``None``: where the last update left them.
            gap_max: nothing is learned where the log-probabilities of actor and sampler are further apart than this, of
                tokens of ``policy_version``.

        Raises:
            NothingLearned: they are, or no gradient was finite. The engine is as before.
        """
        ...

    def kl_to_reference(self, arrays: BatchArrays) -> npt.NDArray[np.float64]:
        """Distance of the sampler from the reference policy, float64, one for each response token."""
        ...

    def save_weights(self, folder: Path) -> None:
        """Write a model for servers into an empty folder, in the type that the engine computes in."""
        ...

    def save(self, folder: Path) -> None:
        """Write float32 weights, optimiser and random state into an empty folder: the engine can go on from there."""
        ...

    def saved_in(self, folder: Path) -> None:
        """The finished name of a folder that :meth:`save_weights` or :meth:`save` wrote."""
        ...

    def close(self) -> None:
        """End everything that was started for it. Nothing else may be called any more."""
        ...


class PolicyServers(Protocol):
    """The servers that sample for the agents."""

    @property
    def address(self) -> str:
        """The address at which agents call them, without ``/v1``."""
        ...

    def load(self, resources: ResourcesRecord) -> float:
        """Have a version served; returns the seconds until it was, or at once where that cannot be seen.

        Raises:
            ServiceUnavailableError: it is not served in time.
        """
        ...

    def pause(self) -> None:
        """Begin no further token. What is under way is kept, and goes on with :meth:`resume`."""
        ...

    def resume(self) -> None:
        """Go on sampling."""
        ...

    def version(self) -> int | None:
        """The newest version that is served; ``None`` where that cannot be seen."""
        ...
