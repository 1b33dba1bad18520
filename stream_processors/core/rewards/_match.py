"""Rewards are matched to calls by their links, else by the named rule; never by the clock."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from lightstream.schemas.attribute_names import AGL_OPERATION_OUTPUT
from lightstream.schemas.records import RewardMatch, RewardRecord

from ._read import RewardReading, is_reward


@dataclass(frozen=True, slots=True)
class SpanAround:
    """A span that a reward names although it is no call: an agent's, an operation's, a chain's.

    Attributes:
        trace_id: the span's trace.
        calls: the calls below it, ascending.
        is_above_all: it is a root, or all calls are below it: the reward is for the whole trajectory.
        too_many: more calls are below it than a link may name.
    """

    trace_id: str
    calls: Sequence[int] = ()
    is_above_all: bool = False
    too_many: bool = False


def named_span(links: Sequence[tuple[str, str]]) -> tuple[str, str | None] | None:
    """The span that links name by its id, and the trace they name beside it, if any; ``None``: they name none so."""
    values = dict(links)
    if len(values) < len(links) or "span_id" not in values or not values.keys() <= {"span_id", "trace_id"}:
        return None
    return values["span_id"], values.get("trace_id")


LINK_TARGETS_MAX = 64
"""Calls that one link may name. A link that matches more (a trace id alone, say) does not tell calls apart."""

_KEYS = {"gen_ai.response.id": "response_id", f"{AGL_OPERATION_OUTPUT}.id": "response_id"}


@dataclass(slots=True)
class CallIndex:
    """The calls of an attempt, by each name that a link may use. Calls are numbered in log order.

    Attributes:
        offsets: offset of each call, ascending.
        by_value: (``span_id`` | ``trace_id`` | ``response_id`` | attribute name, value) -> calls, ascending.
        scopes: where each call is in the tree, see ``RewardReading.scope``; needed by ``first_sibling`` alone.
        around: span id -> the spans with this id that are not calls.
    """

    offsets: list[int] = field(default_factory=list[int])
    by_value: dict[tuple[str, str], list[int]] = field(default_factory=dict[tuple[str, str], list[int]])
    scopes: list[Hashable] = field(default_factory=list[Hashable])
    around: dict[str, list[SpanAround]] = field(default_factory=dict[str, list[SpanAround]])

    def add(self, key: str, value: str, call_index: int) -> None:
        """Let links with this key and value name the call. Calls are added in ascending order."""
        calls = self.by_value.setdefault((key, value), [])
        if not calls or calls[-1] != call_index:
            calls.append(call_index)

    def add_attributes(self, attributes: Mapping[str, str], call_index: int) -> None:
        """Let links name the call by an attribute of one of its spans."""
        for key, value in attributes.items():
            self.add(key, value, call_index)

    def matching(self, links: Iterable[tuple[str, str]]) -> list[int] | None:
        """Calls that match every link, ascending; ``None`` where they are more than a link may name."""
        lists = sorted((self.by_value.get((_KEYS.get(k, k), v), []) for k, v in links), key=len)
        if not lists or not lists[0]:
            return []
        if len(lists[0]) > LINK_TARGETS_MAX:
            return None
        return [call for call in lists[0] if all(_contains(others, call) for others in lists[1:])]

    def spans_named(self, links: Sequence[tuple[str, str]]) -> list[SpanAround]:
        """The spans other than calls that links name by their id, with or without their trace."""
        named = named_span(links)
        if named is None:
            return []
        span_id, trace_id = named
        return [span for span in self.around.get(span_id, ()) if trace_id in (None, span.trace_id)]


@dataclass(slots=True)
class MatchedRewards:
    """The rewards of an attempt, matched.

    Attributes:
        records: every well-formed dimension of every reward, in log order.
        trajectory: the reward of the whole trajectory: the last one in log order that has no link, or is linked to a
            root or a span around all calls; ``None`` is missing.
        by_call: call -> its own reward: the last one in log order.
        added: call -> what automatic rewards add to what credit gives it.
        shared: what of ``trajectory`` credit assignment still has to dispatch (``None`` where calls got it already).
        unmatched: rewards whose link names no call here: (span id, what it named).
        problems: (reading, what is malformed) for the drops.
    """

    records: list[RewardRecord] = field(default_factory=list[RewardRecord])
    trajectory: float | None = None
    by_call: dict[int, float] = field(default_factory=dict[int, float])
    added: dict[int, float] = field(default_factory=dict[int, float])
    shared: float | None = None
    unmatched: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    problems: list[tuple[RewardReading, str]] = field(default_factory=list[tuple[RewardReading, str]])


def match_rewards(readings: Sequence[RewardReading], calls: CallIndex, rule: str) -> MatchedRewards:
    """Match ``readings`` (in log order) to calls. Linear in readings times :data:`LINK_TARGETS_MAX`."""
    matched = MatchedRewards()
    call_before = _unlinked(rule, calls, matched.by_call)
    for reading in readings:
        matched.problems.extend((reading, problem) for problem in reading.problems)
        if not reading.dimensions:
            continue
        if reading.adds:
            _add(reading, calls, matched)
        else:
            _match_one(reading, calls, call_before, matched)
    return matched


_CallBefore = Callable[[RewardReading], int]
"""The call that a reward without a link is for; below 0 where it is for the trajectory."""


def _unlinked(rule: str, calls: CallIndex, rewarded: Mapping[int, float]) -> _CallBefore:
    if rule == "trajectory":
        return lambda _: -1
    if rule == "log_order":
        return lambda reading: bisect_left(calls.offsets, reading.offset) - 1
    return _Unrewarded(calls, rewarded, calls.scopes if rule == "first_sibling" else None).before


class _Unrewarded:
    """The last call before a reward that has none yet, for rewards in log order: each call is looked at once."""

    def __init__(self, calls: CallIndex, rewarded: Mapping[int, float], scopes: Sequence[Hashable] | None) -> None:
        self._offsets = calls.offsets
        self._rewarded = rewarded
        self._scopes = scopes
        self._seen = 0
        self._waiting: dict[Hashable, list[int]] = {}

    def before(self, reading: RewardReading) -> int:
        while self._seen < len(self._offsets) and self._offsets[self._seen] < reading.offset:
            scope = None if self._scopes is None else self._scopes[self._seen]
            self._waiting.setdefault(scope, []).append(self._seen)
            self._seen += 1
        waiting = self._waiting.get(None if self._scopes is None else reading.scope, [])
        while waiting and waiting[-1] in self._rewarded:
            waiting.pop()
        return waiting[-1] if waiting else -1


def _add(reading: RewardReading, calls: CallIndex, matched: MatchedRewards) -> None:
    """For the last call before it, which may have other rewards too; before the first call it is for nothing."""
    call = bisect_left(calls.offsets, reading.offset) - 1
    for dimension, name, value in reading.dimensions:
        if call >= 0:
            total = matched.added.get(call, 0.0) + value
            if not is_reward(total):
                problem = (
                    f"dimension {dimension} ({name}) makes {total} of what is added to call {call}, beyond float32"
                )
                matched.problems.append((reading, problem))
                continue
            matched.added[call] = total
        matched.records.append(
            RewardRecord(
                name=name,
                value=value,
                span_id=reading.span_id,
                call_index=call if call >= 0 else None,
                match=RewardMatch.LOG_ORDER if call >= 0 else RewardMatch.NONE,
                trace_id=reading.trace_id,
                dimension=dimension,
                source_offset=reading.offset,
            )
        )


def _match_one(reading: RewardReading, calls: CallIndex, call_before: _CallBefore, matched: MatchedRewards) -> None:
    primary = next((value for dimension, _, value in reading.dimensions if dimension == 0), None)
    targets: Sequence[int | None] | None
    if reading.links:
        how, targets = _linked(reading, calls)
        if targets is None:
            problem = f"its link matches more than {LINK_TARGETS_MAX} calls: {_shown(reading.links)}"
            matched.problems.append((reading, problem))
            return
        if how is RewardMatch.NONE:
            matched.unmatched.append((reading.span_id, _shown(reading.links)))
        elif how is RewardMatch.TRAJECTORY and primary is not None:
            matched.trajectory = matched.shared = primary
    else:
        before = call_before(reading)
        how = RewardMatch.LOG_ORDER if before >= 0 else RewardMatch.TRAJECTORY
        targets = [before if before >= 0 else None]
        if primary is not None:
            matched.trajectory = primary
            matched.shared = primary if before < 0 else None
    link = _shown(reading.links)
    for target in targets:
        if target is not None and primary is not None:
            matched.by_call[target] = primary
        for dimension, name, value in reading.dimensions:
            matched.records.append(
                RewardRecord(
                    name=name,
                    value=value,
                    span_id=reading.span_id,
                    call_index=target,
                    match=how,
                    trace_id=reading.trace_id,
                    dimension=dimension,
                    source_offset=reading.offset,
                    link=link,
                )
            )


def _linked(reading: RewardReading, calls: CallIndex) -> tuple[RewardMatch, Sequence[int | None] | None]:
    """The kind of match of the links, and their calls; ``None`` where these are more than a link may name.

    A link to a span other than a call means the calls below it; to a root, or a span around all calls, the trajectory.
    """
    found = calls.matching(reading.links)
    if found is not None and not found:
        spans = calls.spans_named(reading.links)
        if any(span.is_above_all for span in spans):
            return RewardMatch.TRAJECTORY, [None]
        found = _calls_below(spans)
    return (RewardMatch.NONE, [None]) if found is not None and not found else (RewardMatch.LINK, found)


def _calls_below(spans: Sequence[SpanAround]) -> list[int] | None:
    """Calls below any of these spans, ascending; ``None`` where they are more than a link may name."""
    found = sorted({call for span in spans for call in span.calls})
    return None if len(found) > LINK_TARGETS_MAX or any(span.too_many for span in spans) else found


def _contains(ascending: Sequence[int], call: int) -> bool:
    at = bisect_left(ascending, call)
    return at < len(ascending) and ascending[at] == call


def _shown(links: Iterable[tuple[str, str]]) -> str:
    return ", ".join(f"{key}={value[:80]}" for key, value in links)
