"""From records of the log to the shapes agents see."""

from __future__ import annotations

import json

from lightstream.schemas.records import AttemptState, RolloutMode, RolloutState
from lightstream.schemas.types import Attempt, AttemptedRollout, Rollout

__all__ = ["attempted_rollout", "rollout"]

NANOS_PER_SECOND = 1e9


def rollout(state: RolloutState) -> Rollout:
    """A rollout as it stands."""
    spec = state.rollout
    return Rollout(
        rollout_id=spec.rollout_id,
        input=json.loads(spec.input_json),
        start_time=spec.enqueued_unix_nano / NANOS_PER_SECOND,
        end_time=_seconds(state.ended_unix_nano),
        mode=None if spec.mode is RolloutMode.UNKNOWN else spec.mode.value,
        resources_id=spec.resources_id,
        status=state.status.value,
        config=spec.config,
        metadata=json.loads(spec.metadata_json),
    )


def attempted_rollout(state: RolloutState, attempt_id: str) -> AttemptedRollout:
    """A rollout with that attempt of it, which must be in ``state``."""
    attempt = next(attempt for attempt in state.attempts if attempt.attempt_id == attempt_id)
    return AttemptedRollout(**rollout(state).model_dump(), attempt=_attempt(state.rollout.rollout_id, attempt))


def _attempt(rollout_id: str, attempt: AttemptState) -> Attempt:
    return Attempt(
        rollout_id=rollout_id,
        attempt_id=attempt.attempt_id,
        sequence_id=attempt.sequence,
        start_time=attempt.started_unix_nano / NANOS_PER_SECOND,
        end_time=_seconds(attempt.ended_unix_nano),
        status=attempt.status.value,
        worker_id=attempt.worker_id,
        last_heartbeat_time=_seconds(attempt.last_heartbeat_unix_nano),
    )


def _seconds(unix_nano: int | None) -> float | None:
    return None if unix_nano is None else unix_nano / NANOS_PER_SECOND
