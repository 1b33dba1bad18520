"""An order of ids that does not depend on when they arrived."""

from __future__ import annotations

import re

__all__ = ["natural_order"]

_DIGITS = re.compile(r"(\d+)")


def natural_order(text: str) -> tuple[tuple[int, int, str], ...]:
    """A sort key that puts ``s2`` before ``s10``: runs of digits compare as numbers, the rest as text."""
    parts = _DIGITS.split(text)
    return tuple((1, int(part), part) if i % 2 else (0, 0, part) for i, part in enumerate(parts))
