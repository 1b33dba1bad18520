"""Names of an answer's columns, as keys of a row."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["distinct_names"]


def distinct_names(columns: Sequence[str]) -> list[str]:
    """Names of which none is twice: later ones get ``_1``, ``_2``, …

    A query may name two columns alike (``SELECT 1 AS a, 2 AS a``); a row that is an object has a key only once.
    """
    names: list[str] = []
    for column in columns:
        name, number = column, 0
        while name in names:
            number += 1
            name = f"{column}_{number}"
        names.append(name)
    return names
