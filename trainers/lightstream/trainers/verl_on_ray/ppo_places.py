"""Rows of a batch as verl's processes take them: a fixed number of mini-batches, however many rows there are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["IDLE_TOKENS", "Places"]

IDLE_TOKENS = 2
"""Of the row that stands where there are too few, see :func:`.shards.with_idle_row`."""


@dataclass(frozen=True, slots=True)
class Places:
    """The rows of a step as verl's processes take them: equally many for each process and mini-batch.

    Attributes:
        rows: number of the row at each place, the places of process 0 first, and of each those of its first mini-batch;
            that of the idle row where there are too few.
        first: of each place: whether it is of the first pass over the batch, in which each row is once.
        parts: mini-batches of all passes.
    """

    rows: list[int]
    first: list[bool]
    parts: int

    @classmethod
    def of(cls, passes: Sequence[Sequence[list[int]]], lengths: Sequence[int], processes: int) -> Places:
        """Lay out mini-batches, by their rows.

        Args:
            passes: the mini-batches of each pass over the batch, none of them empty.
            lengths: tokens of each row.
            processes: how many share each mini-batch.
        """
        from verl.utils.seqlen_balancing import get_seqlen_balanced_partitions

        idle = len(lengths)
        parts = [(part, number == 0) for number, parts in enumerate(passes) for part in parts]
        each = max(-(-len(part) // processes) for part, _ in parts)
        shares: list[list[tuple[int, bool]]] = [[] for _ in range(processes)]
        for part, first in parts:
            filled = part + [idle] * (each * processes - len(part))
            tokens = [IDLE_TOKENS if row == idle else int(lengths[row]) for row in filled]
            split: Any = get_seqlen_balanced_partitions(tokens, k_partitions=processes, equal_size=True)
            for share, chosen in zip(shares, split, strict=True):
                share += [(filled[place], first) for place in chosen]
        flat = [place for share in shares for place in share]
        return cls([row for row, _ in flat], [first for _, first in flat], len(parts))
