"""Times as their users have them, in seconds, and as the log has them, in nanoseconds; both since 1970."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from lightstream.runtime.clock import NANOS_PER_SECOND
from lightstream.schemas.errors import StoreError

HALF_A_STEP_NANOS = 119
"""Half the distance between neighbouring numbers of today's seconds: nearer times are one number."""

SECONDS_MAX = 9_000_000_000.0
"""Beyond it (the year 2255) nanoseconds do not fit in 64 bits."""


def seconds(unix_nano: int | None) -> float | None:
    """Nanoseconds as the nearest number of seconds."""
    return None if unix_nano is None else unix_nano / NANOS_PER_SECOND


def nanos(what: str, value: Any) -> int:
    """Seconds as nanoseconds.

    Raises:
        StoreError: they are not a time; ``what`` names them.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) <= SECONDS_MAX:
        raise StoreError(f"{what} is {value!r:.200}; it must be seconds since 1970")
    return round(Fraction(value) * NANOS_PER_SECOND)
