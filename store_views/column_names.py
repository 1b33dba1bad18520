"""Column names of an answer as keys of an object."""

from __future__ import annotations

from collections.abc import Sequence


def distinct_names(columns: Sequence[str]) -> list[str]:
    """The names in their order; one that was there before gets ``_1``, ``_2``, …

    A join of two tables, or ``SELECT 1 AS a, 2 AS a``, has columns of one name, and an object has a key only once.
    """
    names: list[str] = []
    for column in columns:
        name, number = column, 0
        while name in names:
            number += 1
            name = f"{column}_{number}"
        names.append(name)
    return names
