"""Moving spans that are next to their agent under it."""

from __future__ import annotations

import math
from typing import TypeGuard

from ._enclosing import Interval, closest_enclosing
from ._node import SpanNode

__all__ = ["repair"]


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
