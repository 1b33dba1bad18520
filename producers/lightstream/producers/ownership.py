"""Which attempt a span belongs to, by what it carries. Pure.

The ids travel as attributes of a span, in its trace state (which every OpenTelemetry SDK hands on to the services that
it calls, and exports with each span), or as attributes of its resource, that is, of the process.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from lightstream.schemas.errors import RecordError

from . import semconv
from .context import AttemptRef

__all__ = [
    "BAGGAGE_HEADER",
    "NOBODY",
    "TRACE_STATE_KEY",
    "Owner",
    "owner_in_attributes",
    "owner_in_baggage",
    "owner_in_trace_state",
    "owner_of",
    "sequence_id_in",
    "take_owner",
    "trace_state_value",
]

BAGGAGE_HEADER = "baggage"
TRACE_STATE_KEY = "lightstream"
"""Our entry of the W3C trace state: ``lightstream=<rollout id>/<attempt id>``, both percent-encoded."""

TRACE_STATE_CHARACTERS_MAX = 256
"""Longest value of an entry (W3C Trace Context, level 1, 3.3.1.3.2)."""

SEQUENCE_ID_DIGITS_MAX = 18
"""Within 64 bits."""

_NAMES = ((semconv.ROLLOUT_ID, semconv.ATTEMPT_ID), (semconv.AGL_ROLLOUT_ID, semconv.AGL_ATTEMPT_ID))


class Owner(NamedTuple):
    """A rollout and its attempt; an attempt is never named without its rollout."""

    rollout_id: str | None = None
    attempt_id: str | None = None


NOBODY = Owner()


def owner_of(attributes: dict[str, Any], trace_state: str, elsewhere: Owner) -> Owner:
    """The owner of a span: its attributes' word goes before its trace state's, and that before ``elsewhere``.

    ``lightstream.rollout_id`` and ``lightstream.attempt_id`` leave ``attributes``.
    """
    owner = take_owner(attributes)
    if owner is NOBODY and trace_state:
        owner = owner_in_trace_state(trace_state)
    return elsewhere if owner is NOBODY else owner


def take_owner(attributes: dict[str, Any]) -> Owner:
    """As :func:`owner_in_attributes`; our own names leave ``attributes``, as the record has fields for them."""
    owner = owner_in_attributes(attributes)
    if owner is not NOBODY:
        attributes.pop(semconv.ROLLOUT_ID, None)
        attributes.pop(semconv.ATTEMPT_ID, None)
    return owner


def owner_in_attributes(attributes: Mapping[str, Any]) -> Owner:
    """Whom the attributes of a span or resource name, under our names or Agent Lightning's."""
    for rollout_name, attempt_name in _NAMES:
        if rollout_name in attributes:
            rollout_id = _id(attributes[rollout_name])
            if rollout_id is not None:
                return Owner(rollout_id, _id(attributes.get(attempt_name)))
    return NOBODY


def owner_in_trace_state(header: str) -> Owner:
    """Whom a trace state names, in the form of the header ``tracestate``."""
    if TRACE_STATE_KEY not in header:
        return NOBODY
    for entry in header.split(","):
        key, _, value = entry.strip().partition("=")
        if key == TRACE_STATE_KEY:
            rollout_id, _, attempt_id = value.partition("/")
            return Owner(unquote(rollout_id), unquote(attempt_id) or None) if rollout_id else NOBODY
    return NOBODY


def owner_in_baggage(header: str) -> Owner:
    """Whom a W3C baggage header names (``lightstream.rollout_id=…,lightstream.attempt_id=…``)."""
    members = (member.partition(";")[0].partition("=") for member in header.split(","))
    return owner_in_attributes({unquote(key.strip()): unquote(value.strip()) for key, _, value in members})


def trace_state_value(attempt: AttemptRef) -> str:
    """The value of our entry in a trace state, so that the spans of services that are called name the attempt.

    Raises:
        RecordError: the ids are too long for a trace state.
    """
    value = f"{quote(attempt.rollout_id, safe='')}/{quote(attempt.attempt_id, safe='')}"
    if len(value) > TRACE_STATE_CHARACTERS_MAX:
        raise RecordError(
            f"a trace state takes {TRACE_STATE_CHARACTERS_MAX} characters, and the ids of attempt "
            f"{attempt.attempt_id!r} have {len(value)}.",
            next_step="Carry them as resource attributes instead.",
        )
    return value


def sequence_id_in(*attributes: Mapping[str, Any]) -> int:
    """Agent Lightning's order hint, from the first of these mappings that has one; 0 for none."""
    for mapping in attributes:
        value = mapping.get(semconv.AGL_SPAN_SEQUENCE_ID)
        if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) <= SEQUENCE_ID_DIGITS_MAX:
            return int(value)
        if type(value) is int:
            return value
    return 0


def _id(value: Any) -> str | None:
    return str(value) if value and type(value) in (str, int) else None
