"""What is asked for: taken from the first event, changed by later ones, checked either way."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from lightstream.schemas.records import (
    EventKind,
    RolloutEvent,
    RolloutMode,
    RolloutSpec,
    RolloutState,
    RolloutStatus,
    Verdict,
    VerdictOutcome,
)

from ._rejected import Rejected
from .limits import Limits

__all__ = ["changed_spec", "new_state"]

NO_VERDICT = Verdict(event_id="-", kind=EventKind.UNKNOWN, outcome=VerdictOutcome.UNKNOWN)

UNLESS_NONE: dict[str, Any] = {"input_json": "null", "metadata_json": "null", "mode": RolloutMode.UNKNOWN}
"""What a value of ``None`` means, for fields of a rollout that have one always."""

SPEC_FIELDS = {
    "input": "input_json",
    "mode": "mode",
    "resources_id": "resources_id",
    "config": "config",
    "metadata": "metadata_json",
}
"""Name in ``RolloutChanges.fields`` -> field of changes and spec."""


def new_state(event: RolloutEvent, status: RolloutStatus, limits: Limits) -> RolloutState:
    """The rollout that the event brings.

    Raises:
        Rejected: it brings none, or one that breaks a rule.
    """
    if event.rollout is None:
        raise Rejected(f"an event `{event.kind.value}` needs the rollout")
    if event.rollout.rollout_id != event.rollout_id:
        raise Rejected(f"the event is about {event.rollout_id}, but brings rollout {event.rollout.rollout_id}")
    return RolloutState(
        rollout=_checked(event.rollout, limits),
        status=status,
        updated_unix_nano=event.occurred_unix_nano,
        source_offset=-1,
        verdict=NO_VERDICT,
    )


def changed_spec(state: RolloutState, event: RolloutEvent, limits: Limits) -> tuple[RolloutSpec, RolloutStatus | None]:
    """What is asked for after the changes, and the status that they want.

    Raises:
        Rejected: a change breaks a rule.
    """
    changes = event.rollout_changes
    if changes is None:
        raise Rejected("an event `rollout_updated` needs changes")
    unknown = sorted(set(changes.fields) - SPEC_FIELDS.keys() - {"status"})
    if unknown or changes.status is RolloutStatus.UNKNOWN or ("status" in changes.fields and changes.status is None):
        raise Rejected(f"this version does not know such changes: {', '.join(changes.fields)}")
    values = {SPEC_FIELDS[name]: getattr(changes, SPEC_FIELDS[name]) for name in changes.fields if name != "status"}
    values = {name: UNLESS_NONE.get(name) if value is None else value for name, value in values.items()}
    if "config" in values and values["config"] is None:
        raise Rejected("config is None; a rollout always has one")
    spec = state.rollout
    if values:
        spec = _checked(spec.model_copy(update=values), limits, len(state.attempts))
    return spec, changes.status if "status" in changes.fields else None


def _checked(spec: RolloutSpec, limits: Limits, attempts_made: int = 0) -> RolloutSpec:
    try:
        # What was decoded has Avro's types, but nobody has checked the model's rules yet.
        nested = {"config": spec.config.__dict__, "assembly": None if spec.assembly is None else spec.assembly.__dict__}
        checked = RolloutSpec.model_validate(spec.__dict__ | nested)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"])
        raise Rejected(f"{name} is {first['input']!r}: {first['msg']}") from error
    if broken := limits.broken_rule(checked, attempts_made):
        raise Rejected(broken)
    return checked
