"""What is known of workers, from the calls they made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from .reference import ANY, ENDS, KnownAttempt, KnownRollout


@dataclass
class KnownWorker:
    """A worker; ``ANY`` where the contract leaves open what a call says about it.

    Attributes:
        runs: rollouts that a Runner has in hand; ``None`` for a worker that never said that it is one.
    """

    status: Any = "unknown"
    rollout_id: Any = None
    attempt_id: Any = None
    stats: Any = None
    runs: set[str] | None = None


class KnownWorkers(dict[str, KnownWorker]):
    """All workers that were heard of."""

    def has(self, worker_id: str | None, rollout_id: str, attempt: KnownAttempt) -> None:
        """The worker was handed that attempt."""
        if worker_id is not None:
            worker = self._heard(worker_id)
            worker.status, worker.rollout_id, worker.attempt_id = "busy", rollout_id, attempt.attempt_id
            if worker.runs is not None:
                worker.runs.add(rollout_id)

    def said(self, rollout_id: str, attempt: KnownAttempt, *, about_work: bool) -> None:
        """An attempt was updated; ``about_work``: its status or its worker."""
        if attempt.worker_id is None or not about_work:
            return
        for worker_id, other in self.items():
            if worker_id != attempt.worker_id and other.attempt_id == attempt.attempt_id:
                other.status = other.rollout_id = other.attempt_id = ANY  # another has it now
        worker = self._heard(attempt.worker_id)
        if attempt.status not in (*ENDS, "unresponsive"):
            self.has(attempt.worker_id, rollout_id, attempt)
            return
        if worker.runs is not None:
            worker.runs.discard(rollout_id)
            if worker.runs:  # busy until the last of them ends
                worker.status, worker.rollout_id, worker.attempt_id = "busy", ANY, ANY
                return
        if worker.attempt_id not in (None, attempt.attempt_id):
            # One at a time is what workers have: what is said of one with two is the store's choice.
            worker.status = worker.rollout_id = worker.attempt_id = ANY
            return
        worker.status = "idle" if attempt.status in ("succeeded", "failed") else "unknown"
        worker.rollout_id = worker.attempt_id = None

    def found_nothing(self, worker_id: str | None) -> None:
        """It asked for a rollout and there was none."""
        if worker_id is not None:
            worker = self._heard(worker_id)
            worker.status = "idle" if worker.attempt_id is None or worker.runs is None else ANY

    def alive(self, worker_id: str, stats: Any) -> KnownWorker:
        """A sign of life, perhaps with what it says of itself."""
        worker = self._heard(worker_id)
        worker.stats = worker.stats if stats is None else stats
        return worker

    def reported(self, worker_id: str, status: str, rollout_ids: Iterable[str]) -> None:
        """A Runner's report of itself."""
        worker = self._heard(worker_id)
        worker.runs = set(rollout_ids)
        worker.status, worker.rollout_id, worker.attempt_id = status, ANY, ANY

    def lost(self, attempt_ids: set[str]) -> None:
        """These attempts ended by another's word, or by the clock: until it calls, its worker may not know of it."""
        for worker in self.values():
            if worker.attempt_id is not ANY and worker.attempt_id in attempt_ids:
                worker.status = worker.rollout_id = worker.attempt_id = ANY

    def as_it_stands(self, worker_id: str, rollouts: Mapping[str, KnownRollout]) -> KnownWorker:
        """What is shown: who has in hand what a deadline took, or silence, has it no more, while that stands."""
        worker = self[worker_id]
        if worker.status is not ANY and worker.status not in ("busy", "idle"):
            return worker
        held = worker.runs or set[str]()
        if worker.rollout_id is not ANY and worker.rollout_id is not None:
            held = held | {worker.rollout_id}
        attempts = [
            attempt for rollout_id in held if rollout_id in rollouts for attempt in rollouts[rollout_id].attempts
        ]
        taken = {a.attempt_id for a in attempts if a.worker_id == worker_id and a.status in ("timeout", "unresponsive")}
        if worker.runs is not None:
            return replace(worker, status=ANY, rollout_id=ANY, attempt_id=ANY) if taken else worker
        if worker.attempt_id is not ANY and worker.attempt_id in taken:
            status = "idle" if worker.status is not ANY and worker.status == "idle" else "unknown"
            return replace(worker, status=status, rollout_id=None, attempt_id=None)
        return worker

    def _heard(self, worker_id: str) -> KnownWorker:
        return self.setdefault(worker_id, KnownWorker())
