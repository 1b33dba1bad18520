"""Rewards as spans carry them.

Agent Lightning 0.3: ``agentlightning.reward.N.name`` / ``.value``, the first dimension being the reward, and links
``agentlightning.link.N.key_match`` / ``.value_match`` that must all match. Before 0.3: an ``agentlightning.reward``
span with ``reward``, or AgentOps output ``{"type": "reward", "value": …}``. OpenTelemetry: events
``gen_ai.evaluation.result``, which judge the response they name or the span they sit on; those that judge the same are
dimensions of one reward, the first event being the reward. Sent as a log record, or as a span of that name, such an
event judges the response it names or the span that it is below, and without either the trajectory.
"""

from __future__ import annotations

import math
import re
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lightstream.schemas.attribute_names import AGL_LINK, AGL_OPERATION_NAME, AGL_REWARD
from lightstream.schemas.records import SpanRecord

from ..dialects import is_list, is_map, parse_json

DIMENSIONS_MAX = 64
"""Dimensions of one reward, and links of one reward: far more than any reward function names, and a bound."""

REWARD_MAX = 3.4028235e38
"""Largest absolute value of a reward: what float32 holds, in which segments and batches keep rewards."""

NAME_CHARS_SHOWN = 80
"""Of a reward's name, where it is part of what is wrong: it may be any text."""

_INDEXED = re.compile(r"agentlightning\.(reward|link)\.(\d{1,9})\.(name|value|key_match|value_match)")
_AGENTOPS = ("agentops.task.output", "agentops.entity.output")
_EVALUATION = "gen_ai.evaluation.result"


@dataclass(slots=True)
class RewardReading:
    """One emitted reward.

    Attributes:
        span_id, trace_id, offset: where it was emitted; the offset is its position in the log.
        dimensions: (dimension, name, value); dimension 0 is the reward, and may be missing when it was malformed.
        problems: what was malformed, one sentence each.
        links: what the rewarded call must match, all of it: (key, value); empty for a reward without a link.
        scope: where it is in the tree: the span above it, ``None`` for a root. Compared with ``CallIndex.scopes``.
        adds: it is for the last call before it, and adds to what credit gives that call.
    """

    span_id: str
    trace_id: str
    offset: int
    dimensions: list[tuple[int, str, float]] = field(default_factory=list[tuple[int, str, float]])
    problems: list[str] = field(default_factory=list[str])
    links: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    scope: Hashable = None
    adds: bool = False

    def add(self, dimension: int, name: str, value: object) -> None:
        """Take one dimension, or note its fault."""
        if type(value) in _NUMBERS:
            try:
                number = float(value)  # type: ignore[arg-type]  # a bool, int or float by the line above
            except OverflowError:
                number = math.inf
            if is_reward(number):
                self.dimensions.append((dimension, name, number))
                return
        shown = f"dimension {dimension} ({name[:NAME_CHARS_SHOWN] or 'unnamed'}) is {_shown(value)}"
        self.problems.append(f"{shown}, not a finite number within float32")


_NUMBERS = frozenset({bool, int, float})


def is_reward(number: float) -> bool:
    """Whether a reward may be this: finite, and within float32."""
    return abs(number) <= REWARD_MAX


def encloses_reward(span: SpanRecord) -> bool:
    """Whether LLM calls below ``span`` belong to computing a reward (a judge), not to the agent."""
    attributes = span.attributes
    if span.name == AGL_REWARD or attributes.get(AGL_OPERATION_NAME) == AGL_REWARD:
        return True
    return _agentops_reward(attributes) is not None


def read_rewards(span: SpanRecord, offset: int) -> list[RewardReading]:
    """The rewards of a span, in their order; most spans have none. Never raises."""
    readings: list[RewardReading] = []
    attributes = span.attributes
    if attributes and (reading := _of_attributes(span, attributes, offset)):
        readings.append(reading)
    if span.events or span.name == _EVALUATION:
        readings.extend(_of_events(span, offset))
    return readings


def _of_events(span: SpanRecord, offset: int) -> list[RewardReading]:
    """The evaluations of a span: those of one target are the dimensions of one reward, in their order.

    One without a score (it may have only a label) does not count.
    """
    readings: dict[tuple[str, str] | None, RewardReading] = {}
    dimensions: dict[tuple[str, str] | None, int] = {}
    on_span = ("span_id", span.span_id)
    events: list[tuple[Mapping[str, Any], tuple[str, str] | None]] = [
        (event.attributes, on_span) for event in span.events if event.name == _EVALUATION
    ]
    if span.name == _EVALUATION:
        events.append((span.attributes, ("span_id", span.parent_id) if span.parent_id else None))
    for attributes, otherwise in events:
        score = attributes.get("gen_ai.evaluation.score.value")
        if score is None:
            continue
        response = attributes.get("gen_ai.response.id")
        target = ("gen_ai.response.id", response) if isinstance(response, str) and response else otherwise
        judged = readings.get(target)
        if judged is None:
            judged = readings[target] = RewardReading(
                span.span_id, span.trace_id, offset, links=[] if target is None else [target], scope=_scope(span)
            )
        dimension = dimensions[target] = dimensions.get(target, -1) + 1
        if dimension < DIMENSIONS_MAX:
            name = attributes.get("gen_ai.evaluation.name")
            judged.add(dimension, name if isinstance(name, str) else "", score)
        elif dimension == DIMENSIONS_MAX:
            judged.problems.append(_beyond(dimension))
    return list(readings.values())


def _beyond(dimension: int) -> str:
    return f"dimension {dimension} is beyond the limit of {DIMENSIONS_MAX} dimensions"


def _of_attributes(span: SpanRecord, attributes: Mapping[str, Any], offset: int) -> RewardReading | None:
    found: dict[int, dict[str, Any]] = {}
    links: dict[int, dict[str, Any]] = {}
    for name, value in attributes.items():
        if name.startswith("agentlightning.") and (match := _INDEXED.fullmatch(name)):
            kind, index, part = match.groups()
            (found if kind == "reward" else links).setdefault(int(index), {})[part] = value
    for name, into in ((AGL_REWARD, found), (AGL_LINK, links)):
        structured = attributes.get(name)
        if is_list(structured):
            into.update({i: dict(item) for i, item in enumerate(structured) if is_map(item)})
    reading = RewardReading(span.span_id, span.trace_id, offset, scope=_scope(span))
    if found:
        _take_dimensions(reading, found)
    elif span.name == AGL_REWARD and "reward" in attributes:
        if attributes["reward"] is not None:
            reading.add(0, "", attributes["reward"])
    elif not _take_agentops(reading, attributes):
        return None
    _take_links(reading, links, span)
    return reading if reading.dimensions or reading.problems else None


def _scope(span: SpanRecord) -> tuple[str, str] | None:
    return (span.trace_id, span.parent_id) if span.parent_id else None


def _take_dimensions(reading: RewardReading, found: dict[int, dict[str, Any]]) -> None:
    if 0 not in found:
        reading.problems.append("dimension 0, the reward itself, is missing")
    for index in sorted(found):
        if index >= DIMENSIONS_MAX:
            reading.problems.append(_beyond(index))
            return
        name = found[index].get("name")
        reading.add(index, name if isinstance(name, str) else "", found[index].get("value"))


def _take_agentops(reading: RewardReading, attributes: Mapping[str, Any]) -> bool:
    output = _agentops_reward(attributes)
    if output is not None and output.get("value") is not None:
        reading.add(0, "", output["value"])
    return output is not None


def _agentops_reward(attributes: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The return value of a function that AgentOps watches, if it is a reward."""
    for name in _AGENTOPS:
        if name in attributes:
            output = parse_json(attributes[name])
            if is_map(output) and output.get("type") == "reward":
                return output
    return None


def _take_links(reading: RewardReading, links: dict[int, dict[str, Any]], span: SpanRecord) -> None:
    if len(links) + len(span.links) > DIMENSIONS_MAX:
        reading.problems.append(f"{len(links) + len(span.links)} links are beyond the limit of {DIMENSIONS_MAX}")
        reading.dimensions.clear()
        return
    for index in sorted(links):
        key, value = links[index].get("key_match"), links[index].get("value_match")
        if isinstance(key, str) and key and value is not None:
            reading.links.append((key, value if isinstance(value, str) else str(value)))
        else:
            reading.problems.append(f"link {index} has no key or no value to match")
            reading.dimensions.clear()
    if not reading.links:
        reading.links.extend(("span_id", link.span_id) for link in span.links[:1])


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "…"
