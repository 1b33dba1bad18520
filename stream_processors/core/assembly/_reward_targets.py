"""The targets that a reward may name in an attempt: calls, by ids and attributes, and the spans around them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from ..rewards import LINK_TARGETS_MAX, CallIndex, SpanAround, named_span
from ._buffer import AttemptBuffer
from ._calls import Observation
from ._tree import Node, SpanKey, Tree


def index_calls(
    calls: Sequence[Observation],
    buffer: AttemptBuffer,
    tree: Tree,
    rule: str,
    all_calls: Sequence[Observation] | None = None,
) -> CallIndex:
    """Index of the ids and attributes by which rewards name calls; without links only the rule's keys.

    Args:
        all_calls: all calls of the attempt, where ``calls`` are only some.
    """
    index = CallIndex([call.offset for call in calls])
    if rule == "first_sibling":
        index.scopes = [buffer.nodes[call.key].parent for call in calls]
    keys = {key for reading in buffer.rewards for key, _ in reading.links}
    if not keys:
        return index
    by_attribute = bool(keys - {"span_id", "trace_id", "gen_ai.response.id"})
    for position, call in enumerate(calls):
        for observation in (call, *call.joined):
            trace_id, span_id = observation.key
            index.add("span_id", span_id, position)
            index.add("trace_id", trace_id, position)
            if observation.read.response_id is not None:
                index.add("response_id", observation.read.response_id, position)
            attributes = buffer.nodes[observation.key].attributes if by_attribute else None
            if attributes:
                index.add_attributes({k: v for k, v in attributes.items() if k in keys}, position)
    if "span_id" in keys:
        position_of = {id(call): position for position, call in enumerate(calls)}
        add_spans_around(index, buffer, tree, calls if all_calls is None else all_calls, position_of)
    return index


def add_spans_around(
    index: CallIndex, buffer: AttemptBuffer, tree: Tree, calls: Sequence[Observation], position_of: Mapping[int, int]
) -> None:
    """Let links name spans around calls, see :func:`_spans_around`."""
    span_ids = {named[0] for reading in buffer.rewards if (named := named_span(reading.links)) is not None}
    for span_id, around in _spans_around(span_ids, calls, buffer.nodes, tree, position_of):
        index.around.setdefault(span_id, []).append(around)


def _spans_around(
    span_ids: Collection[str],
    calls: Sequence[Observation],
    nodes: Mapping[SpanKey, Node],
    tree: Tree,
    position_of: Mapping[int, int],
) -> Iterator[tuple[str, SpanAround]]:
    """Each span of the attempt with one of these ids that describes no call, by its id.

    Linear but for the merging of sets (n log n), at any depth of the tree.

    Args:
        calls: all calls of the attempt.
        position_of: call (by ``id()``) -> its number; a call without one is below its spans, but cannot be rewarded.
    """
    described = {observation.key for call in calls for observation in (call, *call.joined)}
    wanted = {key: 0 for key in nodes if key[1] in span_ids and key not in described}
    if not wanted:
        return
    nearest = _NearestWanted(nodes, tree, wanted)
    below: dict[SpanKey, set[int]] = {key: set() for key in wanted}
    for number, call in enumerate(calls):
        for observation in (call, *call.joined):
            around = nearest.up(observation.key)
            if around is not None:
                below[around].add(number)
    for key in wanted:
        around = nearest.up(key)
        if around is not None:
            wanted[around] += 1
    innermost = [key for key, inside in wanted.items() if not inside]
    while innermost:
        key = innermost.pop()
        found = below.pop(key)
        yield key[1], _span_around(key, found, calls, position_of, is_root=nearest.parent(key) is None)
        around = nearest.up(key)
        if around is not None:
            fewer, more = sorted((found, below[around]), key=len)
            more |= fewer
            below[around] = more
            wanted[around] -= 1
            if not wanted[around]:
                innermost.append(around)


def _span_around(
    key: SpanKey, found: set[int], calls: Sequence[Observation], position_of: Mapping[int, int], *, is_root: bool
) -> SpanAround:
    if is_root or (found and len(found) == len(calls)):
        return SpanAround(key[0], is_above_all=True)
    if len(found) > LINK_TARGETS_MAX:
        return SpanAround(key[0], too_many=True)
    positions = {position_of.get(id(calls[number])) for number in found}
    return SpanAround(key[0], sorted(position for position in positions if position is not None))


class _NearestWanted:
    """From each span up to the nearest wanted one; each step is taken once."""

    def __init__(self, nodes: Mapping[SpanKey, Node], tree: Tree, wanted: Collection[SpanKey]) -> None:
        self._nodes = nodes
        self._cut = frozenset(tree.cycles)
        self._wanted = wanted
        self._known: dict[SpanKey, SpanKey | None] = {}

    def parent(self, key: SpanKey) -> SpanKey | None:
        """The span above, ``None`` for what counts as a root."""
        parent = self._nodes[key].parent
        return None if parent not in self._nodes or key in self._cut else parent

    def up(self, key: SpanKey) -> SpanKey | None:
        """The nearest wanted span above ``key``."""
        path: list[SpanKey] = []
        at: SpanKey | None = key
        found: SpanKey | None = None
        while at is not None:
            if at in self._known:
                found = self._known[at]
                break
            path.append(at)
            at = self.parent(at)
            if at in self._wanted:
                found = at
                break
        self._known.update(dict.fromkeys(path, found))
        return found
