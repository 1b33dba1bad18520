"""Finds the spans of a tree that stand for LLM calls, and their rewards: the core's results, on the tree's nodes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from lightstream.schemas.records import SpanRecord

from ..core.assembly import AttemptReading, Observation, SpanKey, add_spans_around, read_attempt
from ..core.dialects import ReadCall, read_calls, read_named
from ..core.rewards import CallIndex
from ..core.rewards import match_rewards as match
from ._node import SpanNode, parents_of
from ._records import in_log_order

N = TypeVar("N", bound=SpanNode)


@dataclass(slots=True)
class TreeReading:
    """The core's reading of the spans of a tree.

    Attributes:
        key_of: node (by ``id()``) -> its key in ``attempt``; nodes that were made up have none.
        offsets: key -> position in the log.
    """

    attempt: AttemptReading
    key_of: dict[int, SpanKey] = field(default_factory=dict[int, SpanKey])
    offsets: dict[SpanKey, int] = field(default_factory=dict[SpanKey, int])


@dataclass(slots=True)
class FoundCall(Generic[N]):
    """A span that stands for a call. ``calls`` has that call as all spans describe it (one for each choice)."""

    node: N
    agent: str
    calls: list[Observation]


def read_tree(root: SpanNode, calls: str | Sequence[SpanNode]) -> TreeReading:
    """Read the spans below ``root``, in log order.

    Args:
        calls: regular expression for names of spans, or the spans themselves, that count as LLM calls even where no
            dialect finds one in them.
    """
    nodes = [node for node in root.traverse() if not node.made_up]
    nodes.sort(key=lambda node: -1 if node.position is None else node.position)
    nodes = [nodes[position] for position in in_log_order([node.span for node in nodes])]
    spans = [node.span for node in nodes]
    across = any(p is not None and p[0] != s.trace_id for s, p in zip(spans, parents_of(spans), strict=True))
    one_trace = across and len({span.span_id for span in spans}) == len(spans)
    records = [node.record.model_copy(update={"trace_id": ""}) if one_trace else node.record for node in nodes]
    keys = [(record.trace_id, record.span_id) for record in records]
    reading = TreeReading(read_attempt(zip(records, range(len(records)), strict=True), _reader(calls)))
    for offset, (node, key) in enumerate(zip(nodes, keys, strict=True)):
        reading.key_of[id(node)] = key
        reading.offsets.setdefault(key, offset)
    return reading


def _reader(calls: str | Sequence[SpanNode]) -> Callable[[SpanRecord], list[ReadCall]]:
    if isinstance(calls, str):
        pattern = re.compile(calls)
        return lambda record: read_calls(record) or (read_named(record) if pattern.search(record.name) else [])
    ids = {node.span.span_id for node in calls}
    return lambda record: read_calls(record) or (read_named(record) if record.span_id in ids else [])


def find_calls(
    root: N,
    reading: TreeReading,
    *,
    llm_call_match: str,
    agent_match: str | None,
    agent: str | None,
    in_reward: bool | None,
    in_call: bool | None,
    known: set[str],
) -> list[FoundCall[N]]:
    """See :meth:`TraceTree.find_llm_calls`; ``agent`` is the one around ``root``."""
    pattern = re.compile(llm_call_match)
    candidates = [
        (node, named, reading.key_of[id(node)])
        for node, named, rewarding in _surroundings(root, agent, agent_match, in_reward)
        if named is not None and not rewarding and not node.made_up and pattern.search(node.span.name)
    ]
    attempt = reading.attempt
    empty = _around_others(attempt, {key for _, _, key in candidates}) if in_call is not None else set[SpanKey]()
    before = set(known)
    counted: set[int | tuple[str, int]] = set()
    found: list[FoundCall[N]] = []
    for node, named, key in candidates:
        of_node = attempt.calls_at.get(key, [])
        if key in empty or (in_call is True and all(call.is_anonymous for call in of_node)):
            continue
        identities = [_identity(call, None if in_call is not None else key) for call in of_node]
        new = [
            call
            for call, identity in zip(of_node, identities, strict=True)
            if call.read.response_id not in before and identity not in counted
        ]
        if of_node and not new:
            continue
        counted.update(identities)
        known.update(call.read.response_id for call in of_node if call.read.response_id is not None)
        found.append(FoundCall(node, named, new))
    return found


def _identity(call: Observation, at_span: SpanKey | None) -> int | tuple[str, int]:
    """The identity by which a call counts once: itself; seen ``at_span``, the response quoted there, else the span."""
    if at_span is None:
        return id(call)
    own = next(observation for observation in (call, *call.joined) if observation.key == at_span)
    return id(own) if own.read.response_id is None else (own.read.response_id, own.read.choice_index)


def _surroundings(
    root: N, agent: str | None, agent_match: str | None, in_reward: bool | None
) -> Iterator[tuple[N, str | None, bool]]:
    """Each node, depth first, with the nearest agent above (``None``: none that matches) and whether in a reward."""
    wanted = None if agent_match is None else re.compile(agent_match)
    stack: list[tuple[N, str | None, bool]] = [(root, agent, bool(in_reward))]
    while stack:
        node, around, rewarding = stack.pop()
        yield node, around, rewarding
        own = node.agent_name()
        if own is not None:
            around = own if wanted is None or wanted.search(own) else None
        below = rewarding or (in_reward is not None and node.is_reward_span())
        stack.extend((child, around, below) for child in reversed(node.children))


def _around_others(attempt: AttemptReading, candidates: set[SpanKey]) -> set[SpanKey]:
    """LLM spans with nothing of their own: around candidates that have, or next to the proxy's records."""
    empty: set[SpanKey] = set()
    by_proxy = any(call.by_proxy for key in candidates for call in attempt.calls_at.get(key, ()))
    if by_proxy:
        empty |= attempt.unattributed
    seen: set[SpanKey] = set()
    for key in candidates:
        above = attempt.tree.inherited[key].call_above if key in attempt.calls_at else None
        while above is not None and above not in seen:
            seen.add(above)
            above = attempt.tree.inherited[above].call_above
    return empty | (seen & attempt.wrappers)


def match_rewards(root: N, reading: TreeReading, calls: Sequence[N], rule: str) -> list[tuple[N, float]]:
    """The calls that have a reward, with it. ``rule`` is one of ``REWARD_MATCHES``."""
    scopes = {id(child): id(node) for node in root.traverse() for child in node.children}
    ordered = sorted(
        {id(node): node for node in calls if id(node) in reading.key_of}.values(),
        key=lambda node: reading.offsets[reading.key_of[id(node)]],
    )
    index = CallIndex()
    attempt = reading.attempt
    for position, node in enumerate(ordered):
        key = reading.key_of[id(node)]
        index.offsets.append(reading.offsets[key])
        index.scopes.append(scopes.get(id(node)))
        index.add("span_id", node.span.span_id, position)
        index.add("trace_id", node.span.trace_id, position)
        for call in attempt.calls_at.get(key, ()):
            for observation in (call, *call.joined):
                index.add("span_id", observation.key[1], position)
                if observation.read.response_id is not None:
                    index.add("response_id", observation.read.response_id, position)
                index.add_attributes(attempt.buffer.nodes[observation.key].attributes or {}, position)
    position_of = {
        id(call): position
        for position, node in enumerate(ordered)
        for call in attempt.calls_at.get(reading.key_of[id(node)], ())
    }
    add_spans_around(index, attempt.buffer, attempt.tree, attempt.calls, position_of)
    node_of = {reading.key_of[id(node)]: id(node) for node in root.traverse() if id(node) in reading.key_of}
    for reward in attempt.rewards:
        reward.scope = scopes.get(node_of[reward.trace_id, reward.span_id])
    matched = match(attempt.rewards, index, getattr(rule, "value", rule))
    return [(ordered[position], value) for position, value in matched.by_call.items()]
