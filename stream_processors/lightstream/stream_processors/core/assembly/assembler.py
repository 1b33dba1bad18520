"""The streaming assembler of one partition of ``spans``."""

from __future__ import annotations

from collections.abc import Iterable

from lightstream.schemas.records import AttemptClosed, AttemptOpened, SpanRecord, Trajectory

from ._attempt import OpenAttempt
from ._rules import AssemblyRules

__all__ = ["Assembler"]

CLOSED_REMEMBERED_MAX = 100_000
"""Attempts remembered after they closed, to know a repeated opening record; about 20 MB."""

_AttemptKey = tuple[str, str]


class Assembler:
    """Folds one partition, in offset order, into one trajectory per attempt.

    An attempt begins with its opening record and ends with its closing record; both, and every span, lie in the same
    partition. State is memory only: after a crash the partition is read again from :meth:`low_water` as it was last
    committed, and every attempt that had not been emitted comes out the same, field by field. An attempt whose opening
    lies below that offset was emitted before, so its remaining records are ignored; spans of attempts that are not
    open are ignored too (the view tells whether they were late or without a rollout).

    Args:
        partition: recorded on trajectories as their source.
        rules: how to assemble.
    """

    def __init__(self, partition: int = -1, rules: AssemblyRules | None = None) -> None:
        self._partition = partition
        self._rules = rules or AssemblyRules()
        self._open: dict[_AttemptKey, OpenAttempt] = {}  # in order of their opening, oldest first
        self._closed: dict[_AttemptKey, None] = {}
        self.ignored_count = 0

    @property
    def open_count(self) -> int:
        """Attempts that are open."""
        return len(self._open)

    def on_record(self, record: SpanRecord | AttemptOpened | AttemptClosed, offset: int) -> list[Trajectory]:
        """Take one record; returns the trajectory it completes, if any. A repeated record changes nothing."""
        if type(record) is SpanRecord:  # isinstance() on a pydantic model takes 2 microseconds
            rollout_id, attempt_id = record.rollout_id, record.attempt_id
            attempt = self._open.get((rollout_id, attempt_id)) if rollout_id and attempt_id else None
            if attempt is None:
                self.ignored_count += 1
            else:
                attempt.add(record, offset)
            return []
        if type(record) is AttemptOpened:
            self._on_opened(record, offset)
            return []
        assert type(record) is AttemptClosed  # noqa: S101  # the third of three
        key = (record.rollout_id, record.attempt_id)
        attempt = self._open.pop(key, None)
        if attempt is None:
            self.ignored_count += 1
            return []
        self._remember(key)
        return [attempt.close(record, offset, self._partition)]

    def on_records(self, records: Iterable[tuple[SpanRecord | AttemptOpened | AttemptClosed, int]]) -> list[Trajectory]:
        """Take many (record, offset) in offset order; returns what they complete, in order."""
        return [trajectory for record, offset in records for trajectory in self.on_record(record, offset)]

    def low_water(self, next_offset: int) -> int:
        """Where reading must start again after a crash: the opening of the oldest open attempt, else ``next_offset``.

        Everything below may be committed, once what came out so far is durable.
        """
        for attempt in self._open.values():
            return attempt.first_offset
        return next_offset

    def _on_opened(self, opened: AttemptOpened, offset: int) -> None:
        key = (opened.rollout.rollout_id, opened.attempt_id)
        if key in self._open or key in self._closed:
            self.ignored_count += 1
            return
        self._open[key] = OpenAttempt(opened, offset, self._rules)

    def _remember(self, key: _AttemptKey) -> None:
        self._closed[key] = None
        if len(self._closed) > CLOSED_REMEMBERED_MAX:
            del self._closed[next(iter(self._closed))]
