"""Whether what a store shows is what is known."""

from __future__ import annotations

from typing import Any

from lightstream.schemas.types import Attempt, AttemptedRollout, Rollout, Worker

from .reference import ANY, KnownAttempt, KnownRollout
from .workers import KnownWorker

CLOSE_S = 1e-5
"""Times that are nearer count as one: stores may tell requests of one call apart by nanoseconds."""


def same_rollout(shown: Rollout, known: KnownRollout, *, times: bool, with_attempt: bool = True) -> None:
    """Compare a rollout, and with it its latest attempt where there is one.

    Args:
        times: compare times too, not only whether there are any.
        with_attempt: it must bring its latest attempt.
    """
    assert (shown.rollout_id, shown.status) == (known.rollout_id, known.status)
    values = {name: getattr(shown, name) for name in known.values}
    assert values == known.values, f"{known.rollout_id}: {values} != {known.values}"
    assert shown.config == known.config
    _same_time("start", shown.start_time, known.started, times)
    _same_time("end", shown.end_time, known.ended, times)
    if with_attempt and known.attempts:
        assert isinstance(shown, AttemptedRollout), f"{shown.rollout_id} is shown without its attempt"
        same_attempt(shown.attempt, known.attempts[-1], times=times)
    else:
        assert not isinstance(shown, AttemptedRollout)


def same_attempt(shown: Attempt, known: KnownAttempt, *, times: bool) -> None:
    """Compare an attempt."""
    assert (shown.attempt_id, shown.sequence_id) == (known.attempt_id, known.number)
    events = {name: getattr(shown, name) for name in ("status", "worker_id", "metadata", "error_type", "error_message")}
    expected = {name: getattr(known, name) for name in events}
    assert events == expected, f"{known.attempt_id}: {events} != {expected}"
    _same_time("start", shown.start_time, known.started, times)
    _same_time("end", shown.end_time, known.ended, times)
    _same_time("last heartbeat", shown.last_heartbeat_time, known.last_heartbeat, times)


def same_worker(shown: Worker | None, worker_id: str, known: KnownWorker) -> None:
    """Compare a worker."""
    assert shown is not None, f"{worker_id} is not known"
    told = (shown.status, shown.current_rollout_id, shown.current_attempt_id, shown.heartbeat_stats)
    expected = (known.status, known.rollout_id, known.attempt_id, known.stats)
    assert told == expected, f"{worker_id}: {told} != {expected}"


def _same_time(what: str, shown: float | None, known: Any, times: bool) -> None:
    if known is ANY:
        return
    assert (shown is None) == (known is None), f"{what}: {shown}, not {known}"
    if times and shown is not None:
        assert abs(shown - known) < CLOSE_S, f"{what}: {shown}, not {known}"
