"""What callers hand over, looked at before anything is written: a call that is refused has changed nothing."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError

from lightstream.schemas.errors import StoreError
from lightstream.schemas.types import EnqueueRolloutRequest, NamedResources, Span, resource_adapter

from ._times import nanos

__all__ = [
    "check_id",
    "check_ids",
    "check_limit",
    "check_requests",
    "check_size",
    "check_span",
    "check_text",
    "check_timeout",
    "checked_resources",
]

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


def check_ids(what: str, values: Any) -> None:
    """``values`` are several texts; raises as :func:`check_text`."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise StoreError(f"{what} is {values!r:.200}; it must be a list of strings")
    for value in values:
        if not isinstance(value, str):
            raise StoreError(f"a value of {what} is {value!r:.200}; it must be a string")


def check_limit(limit: Any) -> None:
    """``limit`` is a number of items.

    Raises:
        StoreError: it is none.
    """
    if not isinstance(limit, int) or isinstance(limit, bool):
        raise StoreError(f"limit is {limit!r:.200}; it must be a number of items")


def check_timeout(timeout_s: Any) -> None:
    """``timeout_s`` is a number of seconds, or ``None`` for ever.

    Raises:
        StoreError: it is none.
    """
    if timeout_s is None:
        return
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, (int, float)) or math.isnan(timeout_s):
        raise StoreError(f"the timeout is {timeout_s!r:.200}; it must be a number of seconds")


def check_requests(rollouts: Iterable[Any]) -> None:
    """All are requests for a rollout.

    Raises:
        StoreError: one is not.
    """
    for request in rollouts:
        if not isinstance(request, EnqueueRolloutRequest):
            raise StoreError(f"a rollout to enqueue is {request!r:.200}, not an EnqueueRolloutRequest")


def checked_resources(resources: Mapping[str, Any]) -> NamedResources:
    """``resources`` as what they are, where a dictionary says it too.

    Raises:
        StoreError: one is not a resource, or its name not a string.
    """
    checked: NamedResources = {}
    for name, resource in resources.items():
        check_text("the name of a resource", name)
        try:
            checked[name] = resource_adapter.validate_python(resource)
        except ValidationError as error:
            raise StoreError(f"{name} is not a resource: {error.errors()[0]['msg']}") from error
    return checked


def check_span(span: Any) -> None:
    """The span can be written down.

    Raises:
        StoreError: it cannot; names the field.
    """
    if not isinstance(span, Span):
        raise StoreError(f"a span is {span!r:.200}, not a Span")
    if span.sequence_id < 0:
        raise StoreError(f"sequence_id is {span.sequence_id}; spans are numbered from 0")
    times = {"start_time": span.start_time, "end_time": span.end_time}
    for what, value in [*times.items(), *(("timestamp", event.timestamp) for event in span.events)]:
        if value is not None:
            nanos(what, value)
    try:
        span.model_dump_json(fallback=str)
    except (PydanticSerializationError, ValueError, RecursionError) as error:
        raise StoreError(f"span {span.span_id!r} cannot be written down: {error}") from error


def check_size(span: Span, bytes_max: int) -> None:
    """The span, as JSON, is no larger than a record, where there are no records to tell.

    Raises:
        StoreError: it is.
    """
    size_bytes = len(span.model_dump_json(fallback=str).encode())
    if size_bytes > bytes_max:
        raise StoreError(f"span {span.span_id!r} has {size_bytes:,} bytes; a record holds {bytes_max:,}")
