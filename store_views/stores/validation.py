"""Checks of callers' arguments, made before anything is written: a call that is refused has changed nothing."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError

from lightstream.schemas.errors import StoreError
from lightstream.schemas.records import ANY_RUN, WorkerHeartbeat
from lightstream.schemas.types import EnqueueRolloutRequest, NamedResources, Span, resource_adapter

from .json_text import check_depth, from_json, to_json
from .times import nanos

ID_CHARACTERS_MAX = 1024
"""Of the names of workers and resources: they are keys, and travel in many records."""


def check_text(what: str, value: Any) -> None:
    """``value`` is a string that can be written down.

    Raises:
        StoreError: it is not; ``what`` names it.
    """
    if not isinstance(value, str):
        raise StoreError(f"{what} is {value!r:.200}; it must be a string")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise StoreError(f"{what} is {value!r:.200}, which is not valid Unicode") from error


def check_id(what: str, value: Any) -> None:
    """``value`` may be the name of something; raises as :func:`check_text`."""
    check_text(what, value)
    if not 0 < len(value) <= ID_CHARACTERS_MAX:
        raise StoreError(f"{what} has {len(value):,} characters; 1 to {ID_CHARACTERS_MAX:,} are allowed")


def check_run_id(value: str | None) -> None:
    """A rollout may belong to a run of that name.

    Raises:
        StoreError: it may not.
    """
    if value is not None and len(value) > ID_CHARACTERS_MAX:
        raise StoreError(f"run_id has {len(value):,} characters; at most {ID_CHARACTERS_MAX:,} are allowed")
    if value == ANY_RUN:
        raise StoreError(f"run_id is {value!r}, which stands for all runs.", next_step="Give the run another name.")


def checked_ids(what: str, values: Any) -> list[str]:
    """``values`` are several texts; raises as :func:`check_text`."""
    ids = _listed(what, values, "strings")
    for value in ids:
        if not isinstance(value, str):
            raise StoreError(f"a value of {what} is {value!r:.200}; it must be a string")
    return ids


def checked_attempts(what: str, values: Any) -> list[tuple[str, str]]:
    """``values`` name attempts, each by the ids of its rollout and its own.

    Raises:
        StoreError: they do not; ``what`` names them.
    """
    named: list[tuple[str, str]] = []
    for value in _listed(what, values, "pairs of a rollout's and an attempt's id"):
        if not isinstance(value, (tuple, list)) or len(value) != 2:
            raise StoreError(f"a value of {what} is {value!r:.200}; it must be a pair (rollout_id, attempt_id)")
        rollout_id, attempt_id = value
        check_text("rollout_id", rollout_id)
        check_text("attempt_id", attempt_id)
        named.append((rollout_id, attempt_id))
    return named


def check_object(what: str, value: Any) -> None:
    """Check that ``value`` is a JSON object, or ``None``.

    Raises:
        StoreError: it is anything else; ``what`` names it.
    """
    if value is not None and not isinstance(value, Mapping):
        raise StoreError(f"{what} is {value!r:.200}; it must be a dictionary or None")


def check_limit(limit: Any) -> None:
    """``limit`` is a number of items.

    Raises:
        StoreError: it is not.
    """
    if not isinstance(limit, int) or isinstance(limit, bool):
        raise StoreError(f"limit is {limit!r:.200}; it must be a number of items")


def check_timeout(what: str, seconds: Any, *, may_be_none: bool = False) -> None:
    """``seconds`` are a time to wait; infinity is one.

    Args:
        may_be_none: ``None`` means that there is no limit.

    Raises:
        StoreError: they are not; ``what`` names them.
    """
    if seconds is None and may_be_none:
        return
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not _is_float(seconds):
        unless = ", or None for no limit" if may_be_none else ""
        raise StoreError(f"{what} is {seconds!r:.200}; it must be a number of seconds{unless}")


def _is_float(number: float) -> bool:
    """Whether it is a number that floats can tell."""
    try:
        return not math.isnan(number)
    except OverflowError:
        return False


def check_dequeue(limit: Any, timeout_s: Any, worker_id: Any, run_id: Any) -> None:
    """These are the arguments of a call that asks for work.

    Raises:
        StoreError: they are not; names the one.
    """
    check_limit(limit)
    check_timeout("timeout_s", timeout_s)
    if worker_id is not None:
        check_id("worker_id", worker_id)
    check_text("run_id", run_id)


def checked_requests(rollouts: Any) -> list[EnqueueRolloutRequest]:
    """All are requests for a rollout.

    Raises:
        StoreError: one is not.
    """
    requests = _listed("rollouts", rollouts, "requests")
    for request in requests:
        if not isinstance(request, EnqueueRolloutRequest):
            raise StoreError(f"a rollout to enqueue is {request!r:.200}, not an EnqueueRolloutRequest")
    return requests


def checked_resources(resources: Any) -> NamedResources:
    """Turn ``resources`` into resources, also from a dictionary.

    Raises:
        StoreError: one is not a resource, or its name not a string.
    """
    if not isinstance(resources, Mapping):
        raise StoreError(f"resources is {resources!r:.200}; it must be a dictionary of names and resources")
    checked: NamedResources = {}
    for name, resource in resources.items():
        check_text("the name of a resource", name)
        try:
            checked[name] = resource_adapter.validate_python(resource)
        except ValidationError as error:
            raise StoreError(f"{name} is not a resource: {error.errors()[0]['msg']}") from error
    return checked


def listed_spans(spans: Any) -> list[Span]:
    """All are spans.

    Raises:
        StoreError: one is not.
    """
    listed = _listed("spans", spans, "spans")
    for span in listed:
        if not isinstance(span, Span):
            raise StoreError(f"a span is {span!r:.200}, not a Span")
    return listed


def checked_spans(spans: Any) -> list[Span]:
    """All are spans that can be written down.

    Raises:
        StoreError: one is not; names the field.
    """
    listed = listed_spans(spans)
    for span in listed:
        _check_span(span)
    return listed


def check_report(worker: Any) -> None:
    """Check that ``worker`` is a valid report of a worker.

    Raises:
        StoreError: it is not; names the field.
    """
    if not isinstance(worker, WorkerHeartbeat):
        raise StoreError(f"worker is {worker!r:.200}, not a WorkerHeartbeat")
    check_id("worker_id", worker.worker_id)
    if worker.stats_json is None:
        return
    try:
        stats = from_json(worker.stats_json)
    except (ValueError, RecursionError) as error:
        raise StoreError(f"stats_json is {worker.stats_json!r:.200}, which is not JSON: {error}") from error
    if not isinstance(stats, dict):
        raise StoreError(f"stats_json is {worker.stats_json!r:.200}; it must be a JSON object")
    check_depth("stats_json", worker.stats_json)


def _check_span(span: Span) -> None:
    if span.sequence_id < 0:
        raise StoreError(f"sequence_id is {span.sequence_id}; spans are numbered from 0")
    times = {"start_time": span.start_time, "end_time": span.end_time}
    for what, value in [*times.items(), *(("timestamp", event.timestamp) for event in span.events)]:
        if value is not None:
            nanos(what, value)
    what = f"span {span.span_id!r}"
    try:
        text = span.model_dump_json(fallback=str)
    except (PydanticSerializationError, ValueError, RecursionError) as error:
        to_json(what, span)  # its error names the limit, if it is nested too deeply
        raise StoreError(f"{what} cannot be written down: {error}") from error
    check_depth(what, text)


def check_size(what: str, text: str, bytes_max: int) -> None:
    """The text, which is JSON, is no larger than a record, where there are no records to tell.

    Raises:
        StoreError: it is; ``what`` names whose it is.
    """
    size_bytes = len(text.encode())
    if size_bytes > bytes_max:
        raise StoreError(f"{what} has {size_bytes:,} bytes; a record holds {bytes_max:,}")


def _listed(what: str, values: Any, kind: str) -> list[Any]:
    """``values`` as a list: they are looked at more than once, and an iterator is empty after the first time."""
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise StoreError(f"{what} is {values!r:.200}; it must be a list of {kind}")
    return list(values)


def enough(rollouts: int, count: int | None, share: float | None) -> int:
    """The number of rollouts, of ``rollouts``, that a caller needs.

    Raises:
        StoreError: it asks for more than there are, or for none, or what it asks for is not a number.
    """
    _check_number("count", count, int)
    _check_number("share", share, (int, float))
    if count is not None and share is not None:
        raise StoreError("wait for a count or for a share, not for both")
    if count is not None:
        if not 0 < count <= max(rollouts, 1):
            raise StoreError(f"count is {count}, but there are {rollouts} rollouts")
        return min(count, rollouts)
    if share is not None:
        if not 0 < share <= 1:
            raise StoreError(f"share is {share}; it must be above 0 and at most 1")
        return math.ceil(share * rollouts)
    return rollouts


def _check_number(what: str, value: Any, kinds: Any) -> None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, kinds)):
        raise StoreError(f"{what} is {value!r:.200}; it must be a number or None")
