"""Which records go to the client in one call."""

from __future__ import annotations

from collections.abc import Sequence

from .publishing import Outgoing

__all__ = ["end_of_row"]

ROW_RECORDS_MAX = 500
ROW_BYTES_MAX = 1_000_000
"""What goes to the client in one call. Meanwhile no other thread of Python runs: some milliseconds for so much."""


def end_of_row(records: Sequence[Outgoing], begin: int) -> int:
    """Where those end that go with the one at ``begin``: to one topic by one rule, not too much at once, and without
    headers, which the client takes only with a call for each."""
    first, end = records[begin], begin + 1
    size_bytes = len(first.value or b"")
    while end < min(len(records), begin + ROW_RECORDS_MAX) and first.headers is None:
        record = records[end]
        size_bytes += len(record.value or b"")
        together = record.headers is None and record.topic is first.topic and record.partition == first.partition
        if not together or size_bytes > ROW_BYTES_MAX:
            break
        end += 1
    return end
