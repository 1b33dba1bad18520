"""Rewards for events in the spans, given to the call before them, in addition to its credit.

Agent Lightning calls this automatic intermediate rewarding (arXiv 2508.03680, section 3.2).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from lightstream.schemas.attribute_names import AGL_EXCEPTION
from lightstream.schemas.errors import SettingsError
from lightstream.schemas.records import SpanRecord, SpanStatus
from lightstream.schemas.valid_text import valid_text

from ..dialects import tool_name
from ..user_function import is_function_name, user_function
from ._read import RewardReading, is_reward

AutomaticRule = Callable[[SpanRecord], float | None]
"""A span -> its reward for the call before it; ``None`` for nothing. Pure."""

AUTOMATIC = "automatic"
"""Names of such rewards begin with it: ``automatic.tool_error``."""


def _is_tool(span: SpanRecord) -> bool:
    return tool_name(span) is not None


def _failed(span: SpanRecord) -> bool:
    return span.status == SpanStatus.ERROR or "error.type" in span.attributes


def _violations(span: SpanRecord) -> Iterator[Mapping[str, Any]]:
    """The violations that a policy engine reports, on the span itself or in its events.

    Agent-OS, in Agent Lightning's contributions: an annotation with ``agent_os.violation``, or its flight recorder's
    ``agent_os.policy_violated``.
    """
    for attributes in (span.attributes, *(event.attributes for event in span.events)):
        if any(attributes.get(name) is True for name in _VIOLATED):
            yield attributes


_VIOLATED = ("agent_os.violation", "agent_os.policy_violated")
_SEVERITY = "agent_os.severity"


def _violated_as(severity: str) -> Callable[[SpanRecord], bool]:
    return lambda span: any(attributes.get(_SEVERITY) == severity for attributes in _violations(span))


_SIGNS: dict[str, Callable[[SpanRecord], bool]] = {
    "tool_ok": lambda span: _is_tool(span) and not _failed(span),
    "tool_error": lambda span: _is_tool(span) and _failed(span),
    "exception": lambda span: span.name == AGL_EXCEPTION,
    "violation": lambda span: any(_violations(span)),
    **{f"violation.{severity}": _violated_as(severity) for severity in ("critical", "high", "medium", "low")},
}


def automatic_rules(names: Sequence[str]) -> list[tuple[str, AutomaticRule]]:
    """(name of the reward, rule) of each: a sign with its worth (``tool_error:-0.1``), or ``module:function``.

    Raises:
        SettingsError: there is no such rule.
    """
    return [_rule(name) for name in names]


def _rule(name: str) -> tuple[str, AutomaticRule]:
    kind, _, argument = name.rpartition(":")
    if kind in _SIGNS:
        try:
            value = float(argument)
        except ValueError:
            value = math.nan
        if is_reward(value):
            shows = _SIGNS[kind]
            return f"{AUTOMATIC}.{kind}", lambda span: value if shows(span) else None
    elif is_function_name(name):
        return f"{AUTOMATIC}.{argument}", user_function(name)
    raise SettingsError(
        f"there is no automatic reward {name!r}.",
        next_step=f"Use one of {[f'{sign}:<value>' for sign in _SIGNS]}, or module:function.",
    )


def read_automatic(rules: Sequence[tuple[str, AutomaticRule]], span: SpanRecord, offset: int) -> list[RewardReading]:
    """The rewards that the rules give for a span; most spans have none. Never raises."""
    readings: list[RewardReading] = []
    for name, rule in rules:
        reading = RewardReading(span.span_id, span.trace_id, offset, adds=True)
        try:
            value = rule(span)
        except Exception as error:  # noqa: BLE001  # the user's code; reported as a malformed reward
            reading.problems.append(valid_text(f"the rule {name} raised {type(error).__name__}: {error}"[:500]))
        else:
            if value is None:
                continue
            reading.add(0, name, value)
        readings.append(reading)
    return readings
