"""Spans that rewards name although they are no calls: what lies below them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from ..rewards import LINK_TARGETS_MAX, SpanAround
from ._observation import Observation
from ._tree import Node, SpanKey, Tree

__all__ = ["spans_around"]


def spans_around(
    span_ids: Collection[str],
    calls: Sequence[Observation],
    nodes: Mapping[SpanKey, Node],
    tree: Tree,
    position_of: Mapping[int, int],
) -> Iterator[tuple[str, SpanAround]]:
    """Each span of the attempt with one of these ids that tells of no call, by its id.

    Linear but for the merging of sets (n log n), at any depth of the tree.

    Args:
        calls: all calls of the attempt.
        position_of: call (by ``id()``) -> its number; a call without one is below its spans, but cannot be rewarded.
    """
    telling = {observation.key for call in calls for observation in (call, *call.joined)}
    wanted = {key: 0 for key in nodes if key[1] in span_ids and key not in telling}
    if not wanted:
        return
    ways = _Ways(nodes, tree, wanted)
    below: dict[SpanKey, set[int]] = {key: set() for key in wanted}
    for number, call in enumerate(calls):
        for observation in (call, *call.joined):
            around = ways.up(observation.key)
            if around is not None:
                below[around].add(number)
    for key in wanted:
        around = ways.up(key)
        if around is not None:
            wanted[around] += 1
    innermost = [key for key, inside in wanted.items() if not inside]
    while innermost:
        key = innermost.pop()
        found = below.pop(key)
        yield key[1], _span_around(key, found, calls, position_of, is_root=ways.parent(key) is None)
        around = ways.up(key)
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


class _Ways:
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
