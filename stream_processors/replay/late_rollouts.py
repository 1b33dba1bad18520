"""Finds the rollouts of a partition that have late spans, and the offsets of all their records."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from lightstream.runtime.kafka import OffsetRange, joined_ranges
from lightstream.schemas.records import AttemptClosed, AttemptOpened, Record, SpanRecord

from .log import LogEntry

BATCH_BYTES_MAX = 64 * 1024 * 1024
"""Size in the log of the rollouts that are assembled together; a larger rollout is alone."""
RECORD_OVERHEAD_BYTES = 1024
"""A record takes about this much memory besides its bytes in the log."""


@dataclass(slots=True)
class RolloutOffsets:
    """Offsets of the records of a rollout: about 500 bytes.

    Attributes:
        first_offset, last_offset: of the openings and closings of its attempts.
        late_offsets: closed attempt -> its spans after the closing record.
        size_bytes: what all of the rollout takes.
    """

    first_offset: int
    last_offset: int
    late_offsets: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    size_bytes: int = 0

    @property
    def is_late(self) -> bool:
        """Whether late spans came for any attempt."""
        return any(self.late_offsets.values())


class LateRollouts:
    """Follows one partition. Rollouts without an opening since its first record are not known.

    Args:
        late_spans_max: late spans that an attempt takes.
    """

    def __init__(self, late_spans_max: int) -> None:
        self._late_spans_max = late_spans_max
        self._rollouts: dict[str, RolloutOffsets] = {}  # in order of their first opening
        self._last_offset = -1

    def add(self, entry: LogEntry) -> None:
        """Take a record."""
        record, rollout_id = entry.record, rollout_of(entry.record)
        if isinstance(record, AttemptOpened):
            self._rollouts.setdefault(rollout_id, RolloutOffsets(entry.offset, entry.offset))
        offsets = self._rollouts.get(rollout_id)
        if offsets is None:
            return
        self._last_offset = entry.offset
        if isinstance(record, SpanRecord):
            late = offsets.late_offsets.get(record.attempt_id or "")
            if late is not None:
                if len(late) >= self._late_spans_max:
                    return
                late.append(entry.offset)
        else:
            offsets.last_offset = entry.offset
            if isinstance(record, AttemptClosed):
                offsets.late_offsets.setdefault(record.attempt_id, [])
        offsets.size_bytes += entry.size_bytes + RECORD_OVERHEAD_BYTES

    def __contains__(self, rollout_id: str) -> bool:
        """Whether late spans came for an attempt of the rollout."""
        offsets = self._rollouts.get(rollout_id)
        return offsets is not None and offsets.is_late

    @property
    def everything(self) -> list[tuple[int, int]]:
        """The range of offsets, both ends inclusive, of all rollouts that are known; empty where none is."""
        first = next(iter(self._rollouts.values()), None)
        return [] if first is None else [(first.first_offset, self._last_offset)]

    def batches(self) -> Iterator[Mapping[str, RolloutOffsets]]:
        """The rollouts with late spans, in order of their first opening, as many together as there is room for."""
        batch: dict[str, RolloutOffsets] = {}
        left_bytes = BATCH_BYTES_MAX
        for rollout_id, offsets in self._rollouts.items():
            if not offsets.is_late:
                continue
            if batch and offsets.size_bytes > left_bytes:
                yield batch
                batch, left_bytes = {}, BATCH_BYTES_MAX
            batch[rollout_id] = offsets
            left_bytes -= offsets.size_bytes
        if batch:
            yield batch


def rollout_of(record: Record) -> str:
    """The rollout that a record of ``spans`` belongs to; empty for a span of none."""
    if isinstance(record, AttemptOpened):
        return record.rollout.rollout_id
    return record.rollout_id or "" if isinstance(record, SpanRecord | AttemptClosed) else ""


def ranges_of(batch: Collection[RolloutOffsets]) -> list[OffsetRange]:
    """Ascending ranges of offsets in which everything of these rollouts lies."""
    offsets = [(p.first_offset, p.last_offset) for p in batch]
    offsets += [(offset, offset) for p in batch for late in p.late_offsets.values() for offset in late]
    return joined_ranges(offsets)
