"""The events a store writes, with ids that make a retried write the same event."""

from __future__ import annotations

from functools import cache
from typing import Any

from pydantic import ValidationError

from lightstream.schemas.errors import StoreError
from lightstream.schemas.records import (
    AssemblySpec,
    AttemptChanges,
    AttemptStatus,
    EventKind,
    RolloutChanges,
    RolloutConfig,
    RolloutEvent,
    RolloutMode,
    RolloutSpec,
    RolloutStatus,
)
from lightstream.schemas.types import UNSET, Assembly, EnqueueRolloutRequest
from lightstream.schemas.types import RolloutConfig as ConfigModel

from .identity import new_id
from .json_text import to_json
from .times import nanos
from .validation import check_id, check_object, check_run_id, check_text

LATEST = "latest"

USUAL_CONFIG = RolloutConfig()

EVENT_ERROR_CHARACTERS_MAX = 10_000
"""Of an error's end, where a traceback says what went wrong. The state keeps less of it."""


def new_attempt_id(rollout_id: str, sequence: int | None = None) -> str:
    """An id for one more attempt of that rollout; ``sequence`` where its number is known."""
    number = "" if sequence is None else f"a{sequence}-"
    return f"{rollout_id}-{number}{new_id(f'attempt {number}{rollout_id}', 8)}"


def enqueued(request: EnqueueRolloutRequest, resources_id: str | None, now_unix_nano: int) -> RolloutEvent:
    """A rollout is asked for. Without an id in the request, the rollout gets a new one.

    Raises:
        StoreError: the request says what no rollout can have.
    """
    spec = _spec(request, resources_id, now_unix_nano)
    return _event(EventKind.ENQUEUED, spec.rollout_id, f":enqueued:{_nonce()}", now_unix_nano, rollout=spec)


def rollout_started(
    request: EnqueueRolloutRequest, resources_id: str | None, worker_id: str | None, now_unix_nano: int
) -> RolloutEvent:
    """As :func:`enqueued`, with a first attempt at once."""
    spec = _spec(request, resources_id, now_unix_nano)
    return _event(
        EventKind.ROLLOUT_STARTED,
        spec.rollout_id,
        f":rollout_started:{_nonce()}",
        now_unix_nano,
        rollout=spec,
        attempt_id=new_attempt_id(spec.rollout_id, 1),
        worker_id=worker_id,
    )


def attempt_started(rollout_id: str, sequence: int, worker_id: str | None, now_unix_nano: int) -> RolloutEvent:
    """A worker wants to begin this attempt; the life cycle accepts the first that asks."""
    attempt_id = new_attempt_id(rollout_id, sequence)
    return _event(
        EventKind.ATTEMPT_STARTED,
        rollout_id,
        f":{attempt_id}:started",
        now_unix_nano,
        attempt_id=attempt_id,
        attempt_sequence=sequence,
        worker_id=worker_id,
    )


def attempt_added(rollout_id: str, worker_id: str | None, now_unix_nano: int) -> RolloutEvent:
    """Somebody wants one more attempt, past the queue."""
    attempt_id = new_attempt_id(rollout_id)
    return _event(
        EventKind.ATTEMPT_ADDED,
        rollout_id,
        f":{attempt_id}:added",
        now_unix_nano,
        attempt_id=attempt_id,
        worker_id=worker_id,
    )


def attempt_changes(status: Any, worker_id: Any, last_heartbeat_time: Any, metadata: Any) -> AttemptChanges:
    """The arguments of ``update_attempt`` as a record.

    Raises:
        StoreError: one has a value that no attempt can have.
    """
    if worker_id is not UNSET:
        check_id("worker_id", worker_id)
    heard = None if last_heartbeat_time is UNSET else nanos("last_heartbeat_time", last_heartbeat_time)
    return AttemptChanges(
        status=None if status is UNSET else _word(AttemptStatus, "attempt status", status),
        worker_id=None if worker_id is UNSET else worker_id,
        last_heartbeat_unix_nano=heard,
        metadata_json=None if metadata is UNSET else _metadata(metadata),
    )


def attempt_updated(
    rollout_id: str,
    attempt_id: str,
    changes: AttemptChanges,
    now_unix_nano: int,
    *,
    error_type: str | None,
    error_message: str | None,
) -> RolloutEvent:
    """Somebody says something about an attempt; ``attempt_id`` may be ``latest``."""
    check_text("attempt_id", attempt_id)
    return _event(
        EventKind.ATTEMPT_UPDATED,
        rollout_id,
        f":attempt_updated:{_nonce()}",
        now_unix_nano,
        attempt_id=attempt_id,
        attempt_changes=changes,
        error_type=error_type,
        error_message=_end_of(error_message),
    )


def rollout_changes(**arguments: Any) -> RolloutChanges:
    """The arguments of ``update_rollout`` as a record.

    Raises:
        StoreError: one has a value that no rollout can have.
    """
    given = {name: value for name, value in arguments.items() if value is not UNSET}
    changes: dict[str, Any] = {"fields": sorted(given)}
    if "status" in given:
        changes["status"] = _word(RolloutStatus, "rollout status", given["status"])
    if "mode" in given:
        changes["mode"] = _mode(given["mode"])
    if "resources_id" in given:
        changes["resources_id"] = given["resources_id"]
        if given["resources_id"] is not None:
            check_id("resources_id", given["resources_id"])
    if "config" in given:
        changes["config"] = _config(given["config"])
    if "input" in given:
        changes["input_json"] = to_json("input", given["input"])
    if "metadata" in given:
        changes["metadata_json"] = _metadata(given["metadata"])
    try:
        return RolloutChanges(**changes)
    except ValidationError as error:
        raise StoreError(_first_of(error)) from error


def rollout_updated(
    rollout_id: str, changes: RolloutChanges, now_unix_nano: int, if_attempt: str | None = None
) -> RolloutEvent:
    """Somebody says something about a rollout; with ``if_attempt`` it holds while that attempt is the open one."""
    event_id = f":rollout_updated:{_nonce()}"
    kind = EventKind.ROLLOUT_UPDATED
    return _event(kind, rollout_id, event_id, now_unix_nano, attempt_id=if_attempt, rollout_changes=changes)


def lease_returned(rollout_id: str, attempt_id: str, now_unix_nano: int) -> RolloutEvent:
    """The caller who was given this attempt has left: its rollout is requeued, unless the attempt is over by then."""
    changes = RolloutChanges(fields=["status"], status=RolloutStatus.REQUEUING)
    return rollout_updated(rollout_id, changes, now_unix_nano, if_attempt=attempt_id)


def span_added(rollout_id: str, attempt_id: str, sequence_id: int, now_unix_nano: int) -> RolloutEvent:
    """The attempt has spans, numbered up to this: a sign of life, and a question whether it exists."""
    event_id = f":{attempt_id}:span_added:{_nonce()}"
    return _event(
        EventKind.SPAN_ADDED, rollout_id, event_id, now_unix_nano, attempt_id=attempt_id, span_sequence=sequence_id
    )


def numbers_taken(rollout_id: str, count: int, now_unix_nano: int) -> RolloutEvent:
    """Somebody takes the next ``count`` sequence numbers of the rollout's spans."""
    event_id = f":numbers_taken:{_nonce()}"
    return _event(EventKind.NUMBERS_TAKEN, rollout_id, event_id, now_unix_nano, span_sequence=count)


def heartbeat(rollout_id: str, attempt_id: str, worker_id: str, now_unix_nano: int) -> RolloutEvent:
    """The attempt is alive."""
    return _event(
        EventKind.HEARTBEAT,
        rollout_id,
        f":{attempt_id}:heartbeat:{now_unix_nano}",
        now_unix_nano,
        attempt_id=attempt_id,
        worker_id=worker_id,
    )


def cancelled(rollout_id: str, reason: str, now_unix_nano: int) -> RolloutEvent:
    """Somebody wants the rollout to stop."""
    return _event(EventKind.CANCELLED, rollout_id, f":cancelled:{_nonce()}", now_unix_nano, reason=reason or None)


def _spec(request: EnqueueRolloutRequest, resources_id: str | None, now_unix_nano: int) -> RolloutSpec:
    for what in ("rollout_id", "run_id", "group_id", "resources_id"):
        if (value := getattr(request, what)) is not None:
            check_text(what, value)
    check_run_id(request.run_id)
    try:
        return RolloutSpec(
            rollout_id=f"ro-{new_id('rollout', 20)}" if request.rollout_id is None else request.rollout_id,
            run_id=request.run_id or "",
            mode=_mode(request.mode),
            input_json=to_json("input", request.input),
            resources_id=resources_id if request.resources_id is None else request.resources_id,
            group_id=request.group_id,
            group_size=request.group_size or 1,
            config=USUAL_CONFIG if request.config is None else _config(request.config),
            metadata_json=_metadata({} if request.metadata is None else request.metadata),
            enqueued_unix_nano=now_unix_nano,
            assembly=_assembly(request.assembly),
        )
    except ValidationError as error:
        raise StoreError(_first_of(error)) from error


def _event(kind: EventKind, rollout_id: str, event_id: str, now_unix_nano: int, **fields: Any) -> RolloutEvent:
    """An event; its id gets the rollout's, unless the attempt's says it already."""
    for what in ("worker_id", "error_type", "error_message", "reason"):
        if (value := fields.get(what)) is not None:
            check_text(what, value)
    named = event_id.removeprefix(":") if event_id.startswith(f":{rollout_id}") else f"{rollout_id}{event_id}"
    try:
        return RolloutEvent(
            event_id=named, kind=kind, rollout_id=rollout_id, occurred_unix_nano=now_unix_nano, **fields
        )
    except ValidationError as error:
        raise StoreError(_first_of(error)) from error


def _config(config: ConfigModel) -> RolloutConfig:
    if not isinstance(config, ConfigModel):  # pyright: ignore[reportUnnecessaryIsInstance]  # untyped callers
        raise StoreError(f"config is {config!r}, not a RolloutConfig")
    try:
        return RolloutConfig.model_validate(config.model_dump(warnings=False))
    except ValidationError as error:
        raise StoreError(_first_of(error)) from error


def _assembly(assembly: Assembly | None) -> AssemblySpec | None:
    """The rules that are not left to the worker; ``None`` where all are."""
    rules = {} if assembly is None else {name: value for name, value in assembly if value is not None}
    for name, value in rules.items():
        check_text(name, value)
    return AssemblySpec(**rules) if rules else None


def _metadata(metadata: Any) -> str:
    check_object("metadata", metadata)
    return to_json("metadata", metadata)


def _mode(mode: Any) -> RolloutMode:
    return RolloutMode.UNKNOWN if mode is None else _word(RolloutMode, "mode", mode)


def _word(words: Any, what: str, value: Any) -> Any:
    """The member of an enum that ``value`` names."""
    known = _known(words)
    if not isinstance(value, str) or value not in known:
        raise StoreError(f"{what} is {value!r}; it must be one of {', '.join(known)}")
    return known[value]


@cache
def _known(words: Any) -> dict[str, Any]:
    return {word.value: word for word in words if word.value != "unknown"}


def _end_of(message: Any) -> str | None:
    if message is None:
        return None
    check_text("error_message", message)
    text = str(message)
    return text if len(text) <= EVENT_ERROR_CHARACTERS_MAX else "…" + text[1 - EVENT_ERROR_CHARACTERS_MAX :]


def _nonce() -> str:
    return new_id("event", 12)


def _first_of(error: ValidationError) -> str:
    first = error.errors()[0]
    name = ".".join(str(part) for part in first["loc"])
    return f"{name} is {first['input']!r:.200}: {first['msg']}"
