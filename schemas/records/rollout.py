"""Rollouts and their attempts: the work, the events about it, and the state folded from these events.

The status words are Agent Lightning's.
"""

from __future__ import annotations

from pydantic import Field, ValidationInfo, field_validator

from lightstream.schemas.assembly_rules import RULE_CHARACTERS_MAX, checked_credit, checked_expression, checked_match

from ._base import Record, RecordEnum

PRIORITY_MAX = 2**31 - 1
WORKERS_PER_REQUEST_MAX = 1000
ANY_RUN = "*"


class RolloutMode(RecordEnum):
    """The purpose of a rollout."""

    UNKNOWN = "unknown"
    TRAIN = "train"
    VAL = "val"
    TEST = "test"


class RolloutStatus(RecordEnum):
    """The status of a rollout. ``succeeded``, ``failed`` and ``cancelled`` are terminal: nothing changes them."""

    UNKNOWN = "unknown"
    QUEUING = "queuing"
    PREPARING = "preparing"
    RUNNING = "running"
    REQUEUING = "requeuing"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_terminal(self) -> bool:
        return self in _TERMINAL_ROLLOUT


class AttemptStatus(RecordEnum):
    """The status of an attempt. ``unresponsive`` may return to ``running``; the last three never change."""

    UNKNOWN = "unknown"
    PREPARING = "preparing"
    RUNNING = "running"
    UNRESPONSIVE = "unresponsive"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMEOUT = "timeout"

    @property
    def is_terminal(self) -> bool:
        return self in _TERMINAL_ATTEMPT


_TERMINAL_ROLLOUT = frozenset({RolloutStatus.SUCCEEDED, RolloutStatus.FAILED, RolloutStatus.CANCELLED})
_TERMINAL_ATTEMPT = frozenset({AttemptStatus.SUCCEEDED, AttemptStatus.FAILED, AttemptStatus.TIMEOUT})


class RolloutConfig(Record):
    """Deadlines and retries of a rollout (Agent Lightning's ``RolloutConfig``)."""

    timeout_seconds: float | None = Field(default=None, ge=0)
    """Longest that an attempt may run; ``None`` means the setting ``rollout_timeout_s``."""
    unresponsive_seconds: float | None = Field(default=None, ge=0)
    """Silence after which an attempt counts as lost; ``None`` means the setting ``rollout_unresponsive_s``."""
    max_attempts: int = Field(default=1, ge=1)
    """Number of attempts that the rollout may have, the first one included."""
    retry_condition: list[AttemptStatus] = Field(default_factory=list[AttemptStatus])
    """Statuses of an ended attempt after which the rollout is tried again."""
    priority: int = Field(default=0, ge=-PRIORITY_MAX, le=PRIORITY_MAX)
    """Of the rollouts that wait, those with a higher priority are dispatched first."""


class AssemblySpec(Record):
    """Rules of assembly that a run sets for its own rollouts; ``None`` leaves the worker's setting."""

    credit: str | None = Field(default=None, max_length=RULE_CHARACTERS_MAX)
    """Rule that gives each call its reward; ``None``: the worker's setting."""
    reward_match: str | None = None
    """Rule that matches rewards without a link; ``None``: the worker's setting."""
    trained_agents: str | None = Field(default=None, max_length=RULE_CHARACTERS_MAX)
    """Regular expression of the agents whose calls are kept; empty keeps all; ``None``: the worker's setting."""

    @field_validator("credit", "reward_match", "trained_agents")
    @classmethod
    def _known(cls, rule: str | None, info: ValidationInfo) -> str | None:
        return None if rule is None else _RULE_CHECKS[info.field_name or ""](rule)


_RULE_CHECKS = {"credit": checked_credit, "reward_match": checked_match, "trained_agents": checked_expression}


class RolloutSpec(Record):
    """The requested work. Only ``rollout_updated`` events change it."""

    rollout_id: str = Field(min_length=1, max_length=256)
    run_id: str = ""
    mode: RolloutMode = RolloutMode.TRAIN
    input_json: str = "null"
    resources_id: str | None = None
    """Version of the resources that the rollout is pinned to; ``None`` means the latest when it starts."""
    group_id: str | None = None
    group_size: int = Field(default=1, ge=1)
    config: RolloutConfig = RolloutConfig()
    metadata_json: str = "{}"
    """Notes of the rollout's writer, as a JSON object."""
    enqueued_unix_nano: int = 0
    """Time at which the rollout was enqueued."""
    assembly: AssemblySpec | None = None
    """Rules of assembly for this rollout; ``None``: the worker's settings."""


class TaskRequest(Record):
    """``rollout-events``, to one partition of its writer's choice: who has time for a rollout that waits there.

    The life cycle starts an attempt of one waiting rollout per entry of ``worker_ids``, as far as there are any. Each
    start is a state in ``rollouts`` whose ``verdict`` names ``request_id``; the header ``answers`` of the answer's
    records says how many of them are still to come, and an answer without a start is an empty record under that key.
    """

    request_id: str = Field(min_length=1, max_length=64)
    """Id of the request, which its answers name."""
    worker_ids: list[str] = Field(max_length=WORKERS_PER_REQUEST_MAX)
    """One entry for each rollout that is asked for: the worker, empty where it has no name."""
    occurred_unix_nano: int
    """Time at which the request was made, by its writer's clock."""
    stands_nanos: int = Field(ge=0)
    """Nanoseconds, from the broker's time, after which nobody waits for an answer and nothing is dispatched. A
    duration, as the clocks of those who ask may differ."""
    run_id: str = ANY_RUN
    """Run whose rollouts are asked for; ``*``: of any run; empty: those that belong to no run."""


class EventKind(RecordEnum):
    """The kind of a :class:`RolloutEvent`.

    ``rollout_started`` makes a rollout with an attempt of its own, past the queue; ``attempt_started`` begins the
    attempt that a rollout waits for (the life cycle derives it from a :class:`TaskRequest`); ``attempt_added`` makes
    one more attempt past the queue. ``heartbeat`` is the one kind that gets no result unless it changes something;
    ``span_added`` is a sign of life whose writer wants to know; ``numbers_taken`` reserves sequence numbers for spans
    to come. ``suspected`` of silence is what nothing was heard of for too long: if no sign of life lay in the log
    before, the life cycle calls it ``unresponsive``.
    """

    UNKNOWN = "unknown"
    ENQUEUED = "enqueued"
    ROLLOUT_STARTED = "rollout_started"
    ROLLOUT_UPDATED = "rollout_updated"
    ATTEMPT_STARTED = "attempt_started"
    ATTEMPT_ADDED = "attempt_added"
    ATTEMPT_UPDATED = "attempt_updated"
    SPAN_ADDED = "span_added"
    NUMBERS_TAKEN = "numbers_taken"
    HEARTBEAT = "heartbeat"
    TIMED_OUT = "timed_out"
    SUSPECTED = "suspected"
    UNRESPONSIVE = "unresponsive"
    CANCELLED = "cancelled"


class RolloutChanges(Record):
    """Changes by ``rollout_updated``: the fields named in ``fields``; a value may be ``None``."""

    fields: list[str]
    """Names of the fields that are replaced."""
    status: RolloutStatus | None = None
    """New status of the rollout."""
    input_json: str | None = None
    """New task, as JSON."""
    mode: RolloutMode | None = None
    """New mode of the rollout."""
    resources_id: str | None = None
    """New version of the resources that the rollout is pinned to."""
    config: RolloutConfig | None = None
    metadata_json: str | None = None
    """New metadata of the rollout, as a JSON object."""


class AttemptChanges(Record):
    """Changes by ``attempt_updated``: whatever is not ``None`` (metadata of ``None`` is the JSON ``null``)."""

    status: AttemptStatus | None = None
    """New status of the attempt."""
    worker_id: str | None = None
    """New worker of the attempt."""
    last_heartbeat_unix_nano: int | None = None
    """Time of a new sign of life."""
    metadata_json: str | None = None
    """New metadata of the attempt, as JSON."""


class RolloutEvent(Record):
    """``rollout-events``: an event about a rollout. Made by stores, the life cycle's timers
    and the assembler.

    Which optional fields are set depends on ``kind``: ``enqueued`` and ``rollout_started`` have ``rollout``; every kind
    about an attempt has ``attempt_id``, ``attempt_started`` also ``attempt_sequence``; updates have ``rollout_changes``
    or ``attempt_changes``, with the error of an attempt that failed.
    """

    event_id: str = Field(min_length=1)
    """Id of the event. It is deterministic: a write that is retried is the same event."""
    kind: EventKind
    """Kind of the event: ``enqueued``, ``attempt_started``, ``attempt_updated``, ``heartbeat``, …."""
    rollout_id: str = Field(min_length=1)
    occurred_unix_nano: int
    """Time of the event, by its writer's clock."""
    rollout: RolloutSpec | None = None
    attempt_id: str | None = None
    """Attempt that the event is about, if any; ``attempt_updated`` may say ``latest``. ``rollout_updated`` with an
    attempt counts only while that one is open."""
    attempt_sequence: int | None = None
    worker_id: str | None = None
    error_type: str | None = None
    error_message: str | None = None
    reason: str | None = None
    """Reason, where the writer gives one."""
    rollout_changes: RolloutChanges | None = None
    attempt_changes: AttemptChanges | None = None
    span_sequence: int | None = None
    """Highest number of the spans added; for ``numbers_taken``, how many numbers are taken."""


class AttemptState(Record):
    """One attempt of a rollout, as far as the events tell."""

    attempt_id: str
    sequence: int
    """Number of the attempt within its rollout, from 1."""
    status: AttemptStatus
    """``preparing``, ``running``, ``unresponsive``, ``succeeded``, ``failed`` or ``timeout``."""
    worker_id: str | None = None
    started_unix_nano: int
    """Time at which the attempt began, by its writer's clock."""
    begun_unix_nano: int | None = None
    """Time at which the event that began it was logged, by the log's clock. The deadline counts from here; ``None``:
    from ``started_unix_nano``."""
    ended_unix_nano: int | None = None
    """Time at which the attempt ended; ``None`` while it has not."""
    last_heartbeat_unix_nano: int | None = None
    """Last sign of life."""
    error_type: str | None = None
    error_message: str | None = None
    metadata_json: str | None = None
    """Notes about the attempt, as JSON."""
    closed: bool = False
    """Its closing record is out, so that nothing about it counts for the rollout any more. That happens with its end,
    or when another attempt took its place."""


class VerdictOutcome(RecordEnum):
    """The result of an event."""

    UNKNOWN = "unknown"
    APPLIED = "applied"
    IGNORED = "ignored"
    REFUSED = "refused"
    NOT_FOUND = "not_found"


class Verdict(Record):
    """The life cycle's result of one event. The writer of the event waits for it."""

    event_id: str
    """Event (or request for work) that this row answers."""
    kind: EventKind
    """Kind of that event."""
    outcome: VerdictOutcome
    """``applied``, ``ignored``, ``refused`` or ``not_found``."""
    reason: str = ""
    """Reason why it was ignored or refused."""


class RolloutState(Record):
    """``rollouts``: a rollout after an event. Made by the life cycle; compacted, the latest is the current state.

    An event that changed nothing still yields a record, with the state unchanged and that event's result.
    """

    rollout: RolloutSpec
    status: RolloutStatus
    """``queuing``, ``preparing``, ``running``, ``requeuing``, ``succeeded``, ``failed`` or ``cancelled``."""
    attempts: list[AttemptState] = Field(default_factory=list[AttemptState])
    """All attempts of the rollout so far, in order."""
    updated_unix_nano: int
    """Time of the last change of the state."""
    ended_unix_nano: int | None = None
    """Time at which the rollout ended; ``None`` while it has not."""
    source_offset: int
    """Offset in ``rollout-events`` (same partition number) of the last event that the state reflects."""
    verdict: Verdict
    span_sequence: int = 0
    """Highest sequence number of a span that was taken or brought along."""
    queue_offset: int = -1
    """Offset in ``rollout-events`` of the event that made the rollout: what waits in one partition is dispatched in
    this order."""
    queue_unix_nano: int = 0
    """Time by which it is dispatched among those of other partitions: ``enqueued_unix_nano``, or the log's own where
    that differs by more than a second."""
    moved_by: list[str] = Field(default_factory=list[str])
    """Ids of the last events that moved the rollout, so that the same event, written again, moves it once."""
