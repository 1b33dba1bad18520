"""The store's contract in the plainest code there is, from the interface's docstrings: no log, no events, no folds.

What the contract leaves open is ``ANY``, which equals everything. Times are seconds since 1970.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from unittest.mock import ANY

from lightstream.schemas.types import FINISHED, RolloutConfig, Span, Unset

__all__ = ["ANY", "KnownAttempt", "KnownRollout", "NotFound", "Reference", "Refused", "given"]

TIMEOUT_S, UNRESPONSIVE_S = 600.0, 60.0
"""Of a rollout that names none."""

WAITING = ("queuing", "requeuing")
ENDS = ("succeeded", "failed", "timeout")
"""How an attempt can end by somebody's word; one that is unresponsive may still come back."""


class Refused(Exception):  # noqa: N818  # a store's answer, not an error of ours
    """The store raises a StoreError, and nothing has changed."""


class NotFound(Refused):
    """The store raises a NotFoundError with this text."""


@dataclass
class KnownAttempt:
    """An attempt. One that is ``in_charge`` decides what becomes of its rollout; there is one at most."""

    attempt_id: str
    number: int
    worker_id: str | None
    started: float
    heard: float
    status: str = "preparing"
    ended: float | None = None
    last_heartbeat: Any = None
    metadata: Any = None
    error_type: Any = None
    error_message: Any = None
    in_charge: bool = True


@dataclass
class KnownRollout:
    """A rollout with its attempts and spans. ``ends`` are the attempts that ended it, or stand for none."""

    rollout_id: str
    status: str
    started: float
    values: dict[str, Any]
    config: RolloutConfig
    ended: float | None = None
    attempts: list[KnownAttempt] = field(default_factory=list[KnownAttempt])
    spans: dict[tuple[str, str], Span] = field(default_factory=dict[tuple[str, str], Span])
    numbers: int = 0
    ends: set[str] = field(default_factory=set[str])

    @property
    def run_id(self) -> str:
        return self.values.get("run_id") or ""

    @property
    def over(self) -> bool:
        return self.status in FINISHED

    @property
    def waits(self) -> bool:
        return self.status in WAITING

    @property
    def in_charge(self) -> KnownAttempt | None:
        return next((attempt for attempt in self.attempts if attempt.in_charge), None)


class Reference:
    """What a store must know and answer. Calls that the contract refuses raise, and change nothing."""

    def __init__(self) -> None:
        self.now = 0.0
        self.rollouts: dict[str, KnownRollout] = {}
        self.resources: dict[str, tuple[int, Any]] = {}
        self.latest_resources: str | None = None

    # --- rollouts

    def enqueue(self, rollout_id: str, config: RolloutConfig, **values: Any) -> KnownRollout:
        return self.rollouts.get(rollout_id) or self._made(rollout_id, "queuing", config, values)

    def start_rollout(
        self, rollout_id: str, attempt_id: str, worker_id: str | None, config: RolloutConfig, **values: Any
    ) -> KnownRollout:
        if rollout_id in self.rollouts:
            raise Refused(f"Rollout {rollout_id} exists already")
        return self._begun(self._made(rollout_id, "preparing", config, values), attempt_id, worker_id)

    def next_in_turn(self, run_id: str = "*") -> KnownRollout | None:
        """Of that run, or of any: by priority, then retries before first attempts, then age."""
        waiting = [rollout for rollout in self.rollouts.values() if rollout.waits and run_id in ("*", rollout.run_id)]
        return min(
            waiting,
            key=lambda rollout: (-rollout.config.priority, rollout.status == "queuing"),  # of equals, the first made
            default=None,
        )

    def dequeue(self, rollout_id: str, attempt_id: str, worker_id: str | None) -> KnownRollout:
        return self._begun(self.rollouts[rollout_id], attempt_id, worker_id)

    def start_attempt(self, rollout_id: str, attempt_id: str, worker_id: str | None) -> KnownRollout:
        rollout = self._rollout(rollout_id)
        rollout.ended = None
        return self._begun(rollout, attempt_id, worker_id)

    def update_rollout(
        self, rollout_id: str, status: str | Unset, config: RolloutConfig | Unset, **values: Any
    ) -> KnownRollout:
        rollout = self._rollout(rollout_id)
        if rollout.over and given(status) and status not in (rollout.status, *WAITING):
            raise Refused(f"rollout {rollout_id} is already {rollout.status}")
        rollout.values |= {name: value for name, value in values.items() if given(value)}
        if not isinstance(config, Unset):
            rollout.config = config
        if isinstance(status, Unset) or status == rollout.status:
            return rollout
        if status in FINISHED:
            self._finish(rollout, status, "succeeded" if status == "succeeded" else "failed", ANY)
        else:
            rollout.status, rollout.ended = status, None
            if not rollout.waits and (silent := rollout.in_charge) and silent.status == "unresponsive":
                self._revived(silent)
        return rollout

    def cancel(self, rollout_id: str, reason: str) -> KnownRollout:
        rollout = self._rollout(rollout_id)
        if not rollout.over:
            self._finish(rollout, "cancelled", "failed", reason or ANY)
        return rollout

    # --- attempts

    def update_attempt(
        self,
        rollout_id: str,
        attempt_id: str,
        status: str | Unset,
        error_type: str | None = None,
        error_message: str | None = None,
        **values: Any,
    ) -> KnownAttempt:
        if not self._rollout(rollout_id).attempts:
            raise NotFound(f"No attempts found for rollout {rollout_id}")
        rollout, attempt = self._attempt(rollout_id, attempt_id)
        if given(status) and (rollout.over or attempt.ended is not None) and status != attempt.status:
            return attempt  # too late
        for name, value in values.items():
            if given(value):
                setattr(attempt, name, value)
        if not attempt.in_charge:
            if not isinstance(status, Unset) and status != attempt.status:
                attempt.status = status
                attempt.ended = self.now if status in ENDS else None
            return attempt
        told = values.get("last_heartbeat")
        names_silence = rollout.config.unresponsive_seconds is not None
        attempt.heard = min(self.now, told) if names_silence and isinstance(told, float) else self.now
        if status in ("preparing", "running"):
            attempt.status = rollout.status = str(status)
            attempt.error_type = attempt.error_message = None
        elif status == "unresponsive":
            self._silent(rollout, attempt)
        elif status == "timeout":
            self._end(rollout, attempt, "timeout", "Timeout", ANY)
        elif not isinstance(status, Unset):
            self._end(rollout, attempt, status, error_type, error_message)
        return attempt

    def heartbeat(self, rollout_id: str, attempt_id: str) -> None:
        rollout = self.rollouts.get(rollout_id)
        attempt = rollout and rollout.in_charge
        if rollout and attempt and attempt.attempt_id == attempt_id:
            self._sign_of_life(rollout, attempt, written=attempt.status != "running")

    # --- spans

    def add_spans(self, spans: list[Span]) -> list[Span]:
        """Those that are new. Where one has no attempt, none is kept; the others' attempts were heard of anyway."""
        missing: list[NotFound] = []
        for span in spans:
            try:
                rollout, attempt = self._attempt(span.rollout_id, span.attempt_id)
            except NotFound as refusal:
                missing.append(refusal)
                continue
            rollout.numbers = max(rollout.numbers, span.sequence_id)
            if attempt.in_charge:
                self._sign_of_life(rollout, attempt, written=True)
                rollout.status = "running"
            elif not rollout.over and attempt.ended is None:  # another took its place, but it still runs
                attempt.status, attempt.last_heartbeat = "running", self.now
                attempt.error_type = attempt.error_message = None
        if missing:
            raise missing[0]
        new: list[Span] = []
        for span in spans:
            kept = self.rollouts[span.rollout_id].spans
            if (span.attempt_id, span.span_id) not in kept:
                kept[span.attempt_id, span.span_id] = span
                new.append(span)
        return new

    def next_numbers(self, rollout_ids: list[str]) -> list[int]:
        """Where one rollout does not exist, the others' numbers are taken all the same, and used by nobody."""
        numbers: list[int] = []
        for known in filter(None, map(self.rollouts.get, rollout_ids)):
            known.numbers += 1
            numbers.append(known.numbers)
        for rollout_id in rollout_ids:
            self._rollout(rollout_id)
        return numbers

    # --- resources

    def store_resources(self, resources_id: str, resources: Any) -> int:
        """The version."""
        version = self.resources.get(resources_id, (0, None))[0] + 1
        self.resources[resources_id] = (version, resources)
        self.latest_resources = resources_id
        return version

    # --- the clock

    def fire_due(self) -> None:
        """Deadlines: of the start, and of the last sign of life. Of an attempt over both, the former counts."""
        for rollout in self.rollouts.values():
            attempt, config = rollout.in_charge, rollout.config
            if attempt is None or rollout.waits:
                continue
            timeout_s = TIMEOUT_S if config.timeout_seconds is None else config.timeout_seconds
            silence_s = UNRESPONSIVE_S if config.unresponsive_seconds is None else config.unresponsive_seconds
            if attempt.started + timeout_s <= self.now:
                self._end(rollout, attempt, "timeout", "Timeout", ANY)
            elif attempt.heard + silence_s <= self.now:
                self._silent(rollout, attempt)

    # --- what becomes of rollouts

    def _made(self, rollout_id: str, status: str, config: RolloutConfig, values: dict[str, Any]) -> KnownRollout:
        values = values | {"resources_id": values.get("resources_id") or self.latest_resources}
        self.rollouts[rollout_id] = KnownRollout(rollout_id, status, self.now, values, config)
        return self.rollouts[rollout_id]

    def _begun(self, rollout: KnownRollout, attempt_id: str, worker_id: str | None) -> KnownRollout:
        self._relieve(rollout)
        rollout.attempts.append(
            KnownAttempt(attempt_id, len(rollout.attempts) + 1, worker_id, started=self.now, heard=self.now)
        )
        rollout.status = "preparing"
        return rollout

    def _relieve(self, rollout: KnownRollout) -> None:
        """Another attempt takes the place of the one in charge. One that fell silent is given up for good."""
        if (attempt := rollout.in_charge) is not None:
            attempt.in_charge = False
            attempt.ended = self.now if attempt.status == "unresponsive" else None

    def _end(self, rollout: KnownRollout, attempt: KnownAttempt, status: str, error_type: Any, message: Any) -> None:
        attempt.status, attempt.ended, attempt.in_charge = status, self.now, False
        attempt.error_type, attempt.error_message = error_type, message
        if status == "succeeded":
            rollout.status = "succeeded"
        elif status in rollout.config.retry_condition and len(rollout.attempts) < rollout.config.max_attempts:
            rollout.status = "requeuing"
        else:
            rollout.status = "failed"
        rollout.ended = self.now if rollout.over else None
        if rollout.over:
            rollout.ends.add(attempt.attempt_id)

    def _silent(self, rollout: KnownRollout, attempt: KnownAttempt) -> None:
        retry = "unresponsive" in rollout.config.retry_condition
        if attempt.status == "unresponsive":
            return
        if retry and len(rollout.attempts) < rollout.config.max_attempts:
            attempt.status, attempt.error_type, attempt.error_message = "unresponsive", ANY, ANY
            rollout.status = "requeuing"
        else:
            self._end(rollout, attempt, "unresponsive", ANY, ANY)

    def _finish(self, rollout: KnownRollout, status: str, attempt_status: str, message: Any) -> None:
        rollout.status, rollout.ended = status, self.now
        attempt = rollout.in_charge
        none = f"{rollout.rollout_id}-none{len(rollout.attempts) + 1}"
        rollout.ends.add(none if attempt is None else attempt.attempt_id)
        if attempt is not None:
            attempt.status, attempt.ended, attempt.in_charge = attempt_status, self.now, False
            failed = attempt_status == "failed"
            attempt.error_type, attempt.error_message = (ANY, message) if failed else (None, None)

    def _sign_of_life(self, rollout: KnownRollout, attempt: KnownAttempt, *, written: bool) -> None:
        attempt.heard = self.now
        # A heartbeat of what runs may be remembered without being written down.
        attempt.last_heartbeat = self.now if written else ANY
        if attempt.status != "running":
            self._revived(attempt)
            rollout.status = "running"

    def _revived(self, attempt: KnownAttempt) -> None:
        attempt.status, attempt.heard = "running", self.now
        attempt.error_type = attempt.error_message = None

    def _rollout(self, rollout_id: str) -> KnownRollout:
        if rollout_id not in self.rollouts:
            raise NotFound(f"Rollout {rollout_id} not found")
        return self.rollouts[rollout_id]

    def _attempt(self, rollout_id: str, attempt_id: str) -> tuple[KnownRollout, KnownAttempt]:
        rollout = self._rollout(rollout_id)
        for attempt in rollout.attempts[::-1]:
            if attempt_id in ("latest", attempt.attempt_id):
                return rollout, attempt
        raise NotFound(f"Attempt {attempt_id} not found for rollout {rollout_id}")


def given(value: Any) -> bool:
    """Whether an optional argument was given."""
    return not isinstance(value, Unset)
