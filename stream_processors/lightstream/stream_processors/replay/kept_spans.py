"""The spans of attempts, for reward rules: of open attempts, and of those that late spans may still revise."""

from __future__ import annotations

from lightstream.schemas.records import AttemptClosed, AttemptOpened, SpanRecord

from .history import AttemptKey

__all__ = ["KeptSpans"]

CLOSED_SPANS_MAX = 10_000
"""As many as the assembler holds of closed attempts."""


class KeptSpans:
    """Follows one partition. The spans of the attempts that closed first are let go of first."""

    def __init__(self) -> None:
        self._open: dict[AttemptKey, list[SpanRecord]] = {}
        self._closed: dict[AttemptKey, list[SpanRecord]] = {}
        self._closed_spans = 0

    def add(self, record: SpanRecord | AttemptOpened | AttemptClosed) -> None:
        """Take a record. Spans of attempts that never opened, or were let go of, are not kept."""
        if isinstance(record, AttemptOpened):
            key = record.rollout.rollout_id, record.attempt_id
            if key not in self._closed:
                self._open.setdefault(key, [])
            return
        key = record.rollout_id or "", record.attempt_id or ""
        if isinstance(record, SpanRecord):
            if key in self._open:
                self._open[key].append(record)
            elif key in self._closed:
                self._closed[key].append(record)
                self._closed_spans += 1
        elif (spans := self._open.pop(key, None)) is not None:
            self._closed[key] = spans
            self._closed_spans += len(spans)
            while self._closed_spans > CLOSED_SPANS_MAX and len(self._closed) > 1:
                self._closed_spans -= len(self._closed.pop(next(iter(self._closed))))

    def of(self, key: AttemptKey) -> list[SpanRecord]:
        """The spans of an attempt, in log order."""
        return self._open.get(key) or self._closed.get(key) or []
