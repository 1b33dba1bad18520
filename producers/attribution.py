"""Attribution: the attempt that a span belongs to, by the ids that it carries. Pure.

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

BAGGAGE_HEADER = "baggage"
TRACE_STATE_KEY = "lightstream"
"""Our entry of the W3C trace state: ``lightstream=<rollout id>/<attempt id>``, both percent-encoded."""

TRACE_STATE_CHARACTERS_MAX = 256
"""Longest value of an entry (W3C Trace Context, level 1, 3.3.1.3.2)."""

SEQUENCE_ID_DIGITS_MAX = 18
"""Within 64 bits."""

_NAMES = ((semconv.ROLLOUT_ID, semconv.ATTEMPT_ID), (semconv.AGL_ROLLOUT_ID, semconv.AGL_ATTEMPT_ID))


class Attribution(NamedTuple):
    """A rollout and its attempt; an attempt is never named without its rollout."""

    rollout_id: str | None = None
    attempt_id: str | None = None


UNATTRIBUTED = Attribution()


def attribution_of(attributes: dict[str, Any], trace_state: str, fallback: Attribution) -> Attribution:
    """The attribution of a span: its attributes go before its trace state, and that before ``fallback``.

    ``lightstream.rollout_id`` and ``lightstream.attempt_id`` leave ``attributes``.
    """
    attribution = take_attribution(attributes)
    if attribution is UNATTRIBUTED and trace_state:
        attribution = attribution_in_trace_state(trace_state)
    return fallback if attribution is UNATTRIBUTED else attribution


def take_attribution(attributes: dict[str, Any]) -> Attribution:
    """As :func:`attribution_in_attributes`; our own names leave ``attributes``, as the record has fields for them."""
    attribution = attribution_in_attributes(attributes)
    if attribution is not UNATTRIBUTED:
        attributes.pop(semconv.ROLLOUT_ID, None)
        attributes.pop(semconv.ATTEMPT_ID, None)
    return attribution


def attribution_in_attributes(attributes: Mapping[str, Any]) -> Attribution:
    """Read the attributes of a span or resource, under our names or Agent Lightning's."""
    for rollout_name, attempt_name in _NAMES:
        if rollout_name in attributes:
            rollout_id = _id(attributes[rollout_name])
            if rollout_id is not None:
                return Attribution(rollout_id, _id(attributes.get(attempt_name)))
    return UNATTRIBUTED


def attribution_in_trace_state(header: str) -> Attribution:
    """Read a trace state, in the form of the header ``tracestate``."""
    if TRACE_STATE_KEY not in header:
        return UNATTRIBUTED
    for entry in header.split(","):
        key, _, value = entry.strip().partition("=")
        if key == TRACE_STATE_KEY:
            rollout_id, _, attempt_id = value.partition("/")
            return Attribution(unquote(rollout_id), unquote(attempt_id) or None) if rollout_id else UNATTRIBUTED
    return UNATTRIBUTED


def attribution_in_baggage(header: str) -> Attribution:
    """Read a W3C baggage header (``lightstream.rollout_id=…,lightstream.attempt_id=…``)."""
    members = (member.partition(";")[0].partition("=") for member in header.split(","))
    return attribution_in_attributes({unquote(key.strip()): unquote(value.strip()) for key, _, value in members})


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
