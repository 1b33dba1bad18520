"""Spans are signs of life: the assembler passes them on to the life cycle, but seldom."""

from __future__ import annotations

from dataclasses import dataclass

from lightstream.schemas.records import AttemptClosed, AttemptOpened, EventKind, RolloutEvent, SpanRecord

from ..core.lifecycle import Limits

__all__ = ["SpanHeartbeats"]

HEARTBEATS_PER_SILENCE = 3
"""An attempt that sends spans all the time gives this many events per ``unresponsive_seconds``."""


@dataclass(slots=True)
class _Attempt:
    interval_nanos: int
    told_unix_nano: int


class SpanHeartbeats:
    """Which spans of one partition's open attempts to pass on as heartbeat events."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._attempts: dict[str, _Attempt] = {}

    def on_record(
        self, record: SpanRecord | AttemptOpened | AttemptClosed, offset: int, now_unix_nano: int
    ) -> RolloutEvent | None:
        """The heartbeat that this record at ``offset`` stands for; ``None`` if one was reported not long ago."""
        if isinstance(record, AttemptOpened):
            interval = self._limits.unresponsive_nanos(record.rollout.config) // HEARTBEATS_PER_SILENCE
            self._attempts[record.attempt_id] = _Attempt(interval, now_unix_nano - interval)  # the first span tells
            return None
        if isinstance(record, AttemptClosed):
            self._attempts.pop(record.attempt_id, None)
            return None
        attempt = self._attempts.get(record.attempt_id or "")
        if attempt is None or not record.rollout_id or now_unix_nano - attempt.told_unix_nano < attempt.interval_nanos:
            return None
        attempt.told_unix_nano = now_unix_nano
        return RolloutEvent(
            event_id=f"{record.attempt_id}:span:{offset}",
            kind=EventKind.HEARTBEAT,
            rollout_id=record.rollout_id,
            occurred_unix_nano=now_unix_nano,
            attempt_id=record.attempt_id,
        )
