"""Moves spans that are next to their agent under it: to the shortest span that encloses them in time."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple, TypeGuard

from ._node import SpanNode


class Interval(NamedTuple):
    """A span's time. Intervals of one ``group`` are never each other's answer."""

    start: float
    end: float
    group: int


def closest_enclosing(intervals: Sequence[Interval], wanted: Sequence[int]) -> dict[int, int]:
    """Position -> position of the shortest interval of another group that encloses it and is not the same interval.

    Of equally short ones the first. Positions without any are left out. n log n, by a sweep over the starts with a tree
    of minima over the ends.
    """
    ends = sorted({interval.end for interval in intervals})
    minima = _Minima(len(ends))
    by_start = sorted(range(len(intervals)), key=lambda i: intervals[i].start)
    in_order = sorted(wanted, key=lambda i: intervals[i].start)
    found: dict[int, int] = {}
    added = 0

    def add_while(condition_start: float, *, same: bool) -> None:
        nonlocal added
        while added < len(by_start):
            interval = intervals[by_start[added]]
            if interval.start > condition_start or (interval.start == condition_start and not same):
                return
            rank = len(ends) - 1 - bisect_left(ends, interval.end)
            minima.add(rank, (interval.end - interval.start, by_start[added], interval.group))
            added += 1

    at = 0
    while at < len(in_order):
        start = intervals[in_order[at]].start
        together = at
        while together < len(in_order) and intervals[in_order[together]].start == start:
            together += 1
        add_while(start, same=False)
        best: dict[int, list[_Candidate]] = {}
        for i in in_order[at:together]:  # begins earlier, ends no earlier
            rank = len(ends) - 1 - bisect_left(ends, intervals[i].end)
            best[i] = minima.least(rank)
        add_while(start, same=True)
        for i in in_order[at:together]:  # begins no later, ends later
            rank = len(ends) - 2 - bisect_left(ends, intervals[i].end)
            candidates = [c for c in (*best[i], *minima.least(rank)) if c[2] != intervals[i].group]
            if candidates:
                found[i] = min(candidates)[1]
        at = together
    return found


_Candidate = tuple[float, int, int]
"""Length, position, group."""


class _Minima:
    """The two least candidates of different groups among those added at ranks 0 … r (a Fenwick tree)."""

    def __init__(self, size: int) -> None:
        self._nodes: list[list[_Candidate]] = [[] for _ in range(size + 1)]

    def add(self, rank: int, candidate: _Candidate) -> None:
        at = rank + 1
        while at < len(self._nodes):
            self._nodes[at] = _two_least([*self._nodes[at], candidate])
            at += at & -at

    def least(self, rank: int) -> list[_Candidate]:
        result: list[_Candidate] = []
        at = rank + 1
        while at > 0:
            result += self._nodes[at]
            at -= at & -at
        return _two_least(result)


def _two_least(candidates: list[_Candidate]) -> list[_Candidate]:
    candidates.sort()
    second = next((c for c in candidates if c[2] != candidates[0][2]), None)
    return candidates[:1] if second is None else [candidates[0], second]


def repair(root: SpanNode) -> None:
    """See :meth:`TraceTree.repair_hierarchy`. n log n in the spans below ``root``."""
    while len(root.children) == 1:
        root = root.children[0]
    nodes: list[SpanNode] = []
    intervals: list[Interval] = []
    floating: dict[int, int] = {}
    for group, child in enumerate(root.children):
        for node in child.traverse():
            if not (_is_time(node.start_time) and _is_time(node.end_time)):
                continue
            if node is child:
                floating[group] = len(nodes)
            nodes.append(node)
            intervals.append(Interval(node.start_time, node.end_time, group))
    homes = closest_enclosing(intervals, list(floating.values()))
    group_of = list(range(len(root.children)))  # a moved group's new one
    moved: set[int] = set()
    for group, position in floating.items():
        if len(root.children) - len(moved) == 1 or position not in homes:
            continue
        home = homes[position]
        if _find(group_of, intervals[home].group) == group:
            continue  # it would lie within itself
        nodes[home].children.append(nodes[position])
        group_of[group] = _find(group_of, intervals[home].group)
        moved.add(group)
    root.children = [child for group, child in enumerate(root.children) if group not in moved]


def _is_time(seconds: float | None) -> TypeGuard[float]:
    """NaN is none: it equals nothing, and is neither before nor after anything."""
    return seconds is not None and math.isfinite(seconds)


def _find(group_of: list[int], group: int) -> int:
    while group_of[group] != group:
        group_of[group] = group_of[group_of[group]]
        group = group_of[group]
    return group
