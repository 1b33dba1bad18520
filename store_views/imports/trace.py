"""The traces of an imported file, and helpers of all readers."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from lightstream.schemas.attribute_names import AGL_ANNOTATION
from lightstream.schemas.errors import SettingsError
from lightstream.schemas.types import Span, TraceStatus

from .json_parts import as_float

TRACE_DIGITS, SPAN_DIGITS = 32, 16


@dataclass(slots=True)
class ImportedTrace:
    """One trace, which becomes one rollout.

    Attributes:
        spans: in the order in which they ended, as far as that is known.
        scores: names of the scores that people or judges gave it and its spans.
    """

    trace_id: str
    task: Any = None
    spans: list[Span] = field(default_factory=list[Span])
    scores: set[str] = field(default_factory=set[str])

    def add_scores(self, scores: Mapping[str | None, Mapping[str, float]], chosen: str | None) -> None:
        """Add scores that people or judges gave, as rewards.

        Args:
            scores: span that they are of (``None``: the whole trace) -> name -> value. Those of the only root are of
                the whole trace; where that has one of the same name itself, this one counts.
            chosen: the name that is the reward and comes first: what has no score of this name has no reward.
                ``None`` takes the only name that there is.

        Raises:
            SettingsError: there are several names for one thing and ``chosen`` is ``None``.
        """
        self.scores.update(name for values in scores.values() for name in values)
        roots = [span.span_id for span in self.spans if span.parent_id is None]
        root = roots[0] if len(roots) == 1 else None
        by_target: dict[str | None, dict[str, float]] = {}
        for target, values in sorted(scores.items(), key=lambda item: item[0] is None):
            by_target.setdefault(None if target == root else target, {}).update(values)
        for target, values in by_target.items():
            if chosen is not None and chosen not in values:
                continue
            if chosen is None and len(values) > 1:
                raise SettingsError(
                    f"trace {self.trace_id} has the scores {sorted(values)}; which one is the reward?",
                    next_step="Name it with --score.",
                )
            first = {chosen: values[chosen]} if chosen is not None else {}
            self.spans.append(reward_span(self.trace_id, list((first | dict(values)).items()), target))


def merged(traces: Iterable[ImportedTrace]) -> list[ImportedTrace]:
    """Each trace once, with the spans of all that have its id. ``traces`` are unchanged.

    A span that is there twice counts once. Spans of several files are in the order in which they ended, those without
    a time behind them.
    """
    by_id: dict[str, list[ImportedTrace]] = {}
    for trace in traces:
        by_id.setdefault(trace.trace_id, []).append(trace)
    return [parts[0] if len(parts) == 1 else _one(parts) for parts in by_id.values()]


def _one(parts: list[ImportedTrace]) -> ImportedTrace:
    spans: list[Span] = []
    by_span_id: dict[str, list[Span]] = {}
    for span in (span for part in parts for span in part.spans):
        known = by_span_id.setdefault(span.span_id, [])
        if span not in known:
            known.append(span)
            spans.append(span)
    spans.sort(key=_ended)
    task = next((part.task for part in parts if part.task is not None), None)
    return ImportedTrace(parts[0].trace_id, task, spans, {score for part in parts for score in part.scores})


def _ended(span: Span) -> float:
    return span.end_time or span.start_time or math.inf


def check_score(traces: Iterable[ImportedTrace], chosen: str | None) -> None:
    """Whether the chosen score is one that any of the traces has.

    Raises:
        SettingsError: none has it.
    """
    check_score_name({name for trace in traces for name in trace.scores}, chosen)


def check_score_name(names: Iterable[str], chosen: str | None) -> None:
    """As :func:`check_score`, of the names that there are."""
    names = set(names)
    if chosen is not None and chosen not in names:
        raise SettingsError(
            f"no trace has a score named {chosen!r}; there are {sorted(names)}.",
            next_step="Name one of these with --score, or leave it out.",
        )


def hex_id(value: object, digits: int) -> str:
    """An id as hex digits of that number: as it is where it is one, without dashes where it is a UUID, else hashed."""
    text = str(value).lower().removeprefix("0x").replace("-", "")
    if len(text) == digits and all(c in "0123456789abcdef" for c in text):
        return text
    return hashlib.sha256(str(value).encode()).hexdigest()[:digits]


def seconds(value: object) -> float | None:
    """A time as seconds since 1970: ISO text (UTC unless it says otherwise), or a number of s, ms, µs or ns.

    One that no store takes is missing, as one that is no time: Go's zero time is of the year 1.
    """
    at = _seconds(value)
    return at if at is not None and abs(at) <= STORED_SECONDS_MAX else None


def _seconds(value: object) -> float | None:
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
    if isinstance(value, str) and not value.replace(".", "", 1).isdecimal():
        try:
            at = datetime.fromisoformat(value)
        except ValueError:
            return None
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        return None
    number = float(value) if isinstance(value, str) else as_float(value)
    if not math.isfinite(number):
        return None
    while number > SECONDS_MAX:
        number /= 1000
    return number or None


SECONDS_MAX = 1e11
"""The year 5138: more is a smaller unit."""

STORED_SECONDS_MAX = 9e9
"""Limit of stores, on either side of 1970 (to 2255): nanoseconds must fit in 64 bits."""


def json_text(value: object) -> str:
    """Text as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def made_span(
    trace_id: str,
    span_id: str,
    parent_id: str | None,
    name: str,
    attributes: Mapping[str, Any],
    *,
    start: object = None,
    end: object = None,
    error: str | None = None,
) -> Span:
    """A span; ``error`` is its message where it failed."""
    status = TraceStatus(status_code="OK") if error is None else TraceStatus(status_code="ERROR", description=error)
    return Span.from_attributes(
        trace_id=trace_id,
        span_id=span_id,
        parent_id=parent_id,
        name=name,
        attributes={key: value for key, value in attributes.items() if value is not None},
        start_time=seconds(start),
        end_time=seconds(end),
        status=status,
    )


def reward_span(trace_id: str, rewards: Sequence[tuple[str, float]], of_span: str | None = None) -> Span:
    """A reward as agents emit it: the first value counts; for one span, else for the whole trace."""
    attributes: dict[str, Any] = {}
    for index, (name, value) in enumerate(rewards):
        attributes[f"agentlightning.reward.{index}.name"] = name
        attributes[f"agentlightning.reward.{index}.value"] = value
    if of_span is not None:
        attributes |= {"agentlightning.link.0.key_match": "span_id", "agentlightning.link.0.value_match": of_span}
    span_id = hex_id(f"{trace_id}:{of_span}:{sorted(name for name, _ in rewards)}", SPAN_DIGITS)
    return made_span(trace_id, span_id, None, AGL_ANNOTATION, attributes)
