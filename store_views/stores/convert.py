"""From records of the log to the shapes agents see."""

from __future__ import annotations

from typing import Any

from lightstream.runtime.clock import NANOS_PER_SECOND
from lightstream.schemas.records import AttemptState, ResourcesRecord, RolloutMode, RolloutState
from lightstream.schemas.types import (
    Assembly,
    Attempt,
    AttemptedRollout,
    ResourcesUpdate,
    Rollout,
    RolloutConfig,
    resource_adapter,
)

from .json_text import from_json
from .times import seconds


def rollout(state: RolloutState) -> Rollout:
    """A rollout, without its attempts."""
    return Rollout(**_fields(state))


def attempted_rollout(state: RolloutState, of: AttemptState) -> AttemptedRollout:
    """A rollout with that attempt of it."""
    return AttemptedRollout(**_fields(state), attempt=attempt(state.rollout.rollout_id, of))


def rollout_as_it_stands(state: RolloutState) -> Rollout:
    """A rollout with its latest attempt, if it has one."""
    return attempted_rollout(state, state.attempts[-1]) if state.attempts else rollout(state)


def attempt(rollout_id: str, state: AttemptState) -> Attempt:
    """One attempt."""
    return Attempt.model_validate(
        {
            "rollout_id": rollout_id,
            "attempt_id": state.attempt_id,
            "sequence_id": state.sequence,
            "start_time": state.started_unix_nano / NANOS_PER_SECOND,
            "end_time": seconds(state.ended_unix_nano),
            "status": state.status.value,
            "worker_id": state.worker_id,
            "last_heartbeat_time": seconds(state.last_heartbeat_unix_nano),
            "metadata": None if state.metadata_json is None else from_json(state.metadata_json),
            "error_type": state.error_type,
            "error_message": state.error_message,
        }
    )


def resources_update(record: ResourcesRecord) -> ResourcesUpdate:
    """Resources as their users see them."""
    return ResourcesUpdate(
        resources_id=record.resources_id,
        create_time=record.created_unix_nano / NANOS_PER_SECOND,
        update_time=(record.updated_unix_nano or record.created_unix_nano) / NANOS_PER_SECOND,
        version=record.version,
        resources={name: resource_adapter.validate_json(text) for name, text in record.resources.items()},
        model=record.model,
        checkpoint_url=record.checkpoint_url,
        run_id=record.run_id or None,
    )


def _fields(state: RolloutState) -> dict[str, Any]:
    spec = state.rollout
    return {
        "rollout_id": spec.rollout_id,
        "input": from_json(spec.input_json),
        "start_time": spec.enqueued_unix_nano / NANOS_PER_SECOND,
        "end_time": seconds(state.ended_unix_nano),
        "mode": None if spec.mode is RolloutMode.UNKNOWN else spec.mode.value,
        "resources_id": spec.resources_id,
        "status": state.status.value,
        "config": RolloutConfig(**spec.config.__dict__),
        "metadata": from_json(spec.metadata_json),
        "run_id": spec.run_id or None,
        "group_id": spec.group_id,
        "group_size": spec.group_size if spec.group_id is not None else None,
        "assembly": None if spec.assembly is None else Assembly.model_construct(**dict(spec.assembly)),
    }
