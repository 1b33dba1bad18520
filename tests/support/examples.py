"""How many examples a property test takes: at most 60 in ``make test``, all in ``make soak``."""

from __future__ import annotations

from hypothesis import settings


def examples(full: int) -> int:
    """Return ``full``, or the profile's number where that is smaller."""
    return min(full, settings().max_examples)
