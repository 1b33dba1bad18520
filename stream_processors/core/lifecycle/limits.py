"""Limits of a rollout's specs, and the check of specs against them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from pydantic import ValidationError

from lightstream.runtime.clock import NANOS_PER_SECOND
from lightstream.runtime.settings import Settings
from lightstream.schemas.records import (
    EventKind,
    RolloutConfig,
    RolloutEvent,
    RolloutMode,
    RolloutSpec,
    RolloutState,
    RolloutStatus,
    Verdict,
    VerdictOutcome,
)

ATTEMPTS_MAX = 1000
"""Attempts of one rollout. Each stays in the rollout's state, so their number bounds its size."""

ERROR_MESSAGE_CHARACTERS_MAX = 2000
"""Kept of an attempt's error in the state, of both its ends (the event has more): 8 KB in UTF-8 at most."""

ERROR_TYPE_CHARACTERS_MAX = 200

ATTEMPT_BYTES_MAX = 4 * (ERROR_MESSAGE_CHARACTERS_MAX + ERROR_TYPE_CHARACTERS_MAX) + 4096
"""One attempt in a state record: the error, and ids of up to 1,024 characters."""

ATTEMPTS_METADATA_BYTES_MAX = 256 * 1024
"""Metadata of all attempts of a rollout together: they travel in each of its state records."""

RECORD_RESERVE_BYTES = 64 * 1024 + ATTEMPTS_METADATA_BYTES_MAX
"""Room for the rest of a state record: result, ids, framing, the attempts' metadata."""

RESOURCES_RESERVE_BYTES = 64 * 1024
"""Room for the rest of a record of resources: ids, times, the checkpoint's address, framing."""

DURATION_S_MAX = 10 * 365 * 24 * 3600.0
"""Ten years. Longer deadlines, infinity too, count as this, so that they fit in int64 nanoseconds."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Deadlines for rollouts that name none, and the largest rollout.

    Attributes:
        timeout_s: deadline of an attempt, in seconds since its start.
        unresponsive_s: silence, in seconds, after which an attempt counts as lost.
        record_bytes_max: largest Kafka record; a rollout whose state might outgrow it is refused.
    """

    timeout_s: float = 600.0
    unresponsive_s: float = 60.0
    record_bytes_max: int = 32 * 1024 * 1024

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """The limits that ``settings`` ask for."""
        return cls(settings.rollout_timeout_s, settings.rollout_unresponsive_s, settings.record_bytes_max)

    @property
    def resources_bytes_max(self) -> int:
        """Largest resources, names and values together, in bytes of UTF-8, that fit in a record."""
        return self.record_bytes_max - RESOURCES_RESERVE_BYTES

    def timeout_nanos(self, config: RolloutConfig) -> int:
        """Nanoseconds from an attempt's start to its deadline."""
        return _nanos(self.timeout_s if config.timeout_seconds is None else config.timeout_seconds)

    def unresponsive_nanos(self, config: RolloutConfig) -> int:
        """Nanoseconds of silence after which an attempt is unresponsive."""
        return _nanos(self.unresponsive_s if config.unresponsive_seconds is None else config.unresponsive_seconds)

    def spec_bytes_max(self, config: RolloutConfig) -> int:
        """Largest input and metadata together, in bytes of UTF-8, whose states fit in a record."""
        return self.record_bytes_max - RECORD_RESERVE_BYTES - config.max_attempts * ATTEMPT_BYTES_MAX

    def broken_rule(self, spec: RolloutSpec, attempts_made: int = 0) -> str:
        """Return why this rollout cannot be accepted (or get the last of ``attempts_made``), or an empty string."""
        attempts = max(spec.config.max_attempts, attempts_made)
        if attempts > ATTEMPTS_MAX:
            name = "max_attempts is" if attempts > attempts_made else "the number of attempts would be"
            return f"{name} {attempts}, over the limit of {ATTEMPTS_MAX}"
        size = len(spec.input_json.encode()) + len(spec.metadata_json.encode())
        fits = self.spec_bytes_max(spec.config) - (attempts - spec.config.max_attempts) * ATTEMPT_BYTES_MAX
        if size > fits:
            return (
                f"input and metadata have {size:,} bytes; with {attempts} attempts at most "
                f"{max(fits, 0):,} fit in a record"
            )
        return ""


def _nanos(seconds: float) -> int:
    return int(min(seconds, DURATION_S_MAX) * NANOS_PER_SECOND)


class Rejected(Exception):  # noqa: N818  # not an error: the event is answered
    """The event changes nothing; its result says why."""

    def __init__(self, reason: str, outcome: VerdictOutcome = VerdictOutcome.REFUSED) -> None:
        super().__init__(reason)
        self.outcome = outcome


NO_RESULT = Verdict(event_id="-", kind=EventKind.UNKNOWN, outcome=VerdictOutcome.UNKNOWN)

UNLESS_NONE: dict[str, Any] = {"input_json": "null", "metadata_json": "null", "mode": RolloutMode.UNKNOWN}
"""Values that stand for ``None`` in fields of a rollout that always have one."""

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
        verdict=NO_RESULT,
    )


def changed_spec(state: RolloutState, event: RolloutEvent, limits: Limits) -> tuple[RolloutSpec, RolloutStatus | None]:
    """The spec after the changes, and the status that they ask for.

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
        # What was decoded has Avro's types, but the model's rules are not checked yet.
        nested = {"config": spec.config.__dict__, "assembly": None if spec.assembly is None else spec.assembly.__dict__}
        checked = RolloutSpec.model_validate(spec.__dict__ | nested)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"])
        raise Rejected(f"{name} is {first['input']!r}: {first['msg']}") from error
    if broken := limits.broken_rule(checked, attempts_made):
        raise Rejected(broken)
    return checked
