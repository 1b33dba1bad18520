"""Ranges of offsets in one partition, both ends inclusive."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

OffsetRange: TypeAlias = "tuple[int, int]"
"""The first offset and the last."""

GAP_RECORDS_MAX = 1000
"""Between two ranges that are wanted: fewer records are read over, since asking anew takes about as long."""


def joined_ranges(ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
    """The same offsets in ascending ranges, with small gaps filled."""
    joined: list[OffsetRange] = []
    for first, last in sorted(ranges):
        if joined and first - joined[-1][1] <= GAP_RECORDS_MAX:
            joined[-1] = (joined[-1][0], max(joined[-1][1], last))
        else:
            joined.append((first, last))
    return joined
