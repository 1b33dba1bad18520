"""Get a span taken that cannot be taken as it is: with valid text, then shorter and shorter."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from lightstream.schemas.errors import RecordError, RecordTooLargeError
from lightstream.schemas.records import SpanRecord
from lightstream.schemas.valid_text import valid_text

from .truncate import shortened

__all__ = ["taken_as_fits"]

T = TypeVar("T")

CUTS_MAX = 4
"""How much a cut saves is an estimate, which may be short, so more than one is allowed."""


def taken_as_fits(record: SpanRecord, take: Callable[[SpanRecord], T]) -> tuple[T, bool]:
    """What ``take`` returns for the span, and whether the span lost values to fit. ``record`` is unchanged.

    Args:
        take: encodes or sends a span. Raises :class:`RecordError` for one that cannot be encoded and
            :class:`RecordTooLargeError` for one over the limit, and has done nothing then.

    Raises:
        RecordError: it cannot be encoded with valid text either.
        RecordTooLargeError: it does not fit however much is cut.
    """
    try:
        try:
            return take(record), False
        except RecordError:
            record = valid_text(record)
            return take(record), False
    except RecordTooLargeError as error:
        too_large = error
    excess_bytes = 0
    for _ in range(CUTS_MAX):
        excess_bytes += too_large.size_bytes - too_large.limit_bytes
        try:
            return take(shortened(record, excess_bytes)), True
        except RecordTooLargeError as error:
            too_large = error
    raise too_large
