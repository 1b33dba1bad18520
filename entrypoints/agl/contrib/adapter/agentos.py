"""The flight recorder of Agent-OS as spans."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from lightstream.runtime.loop_thread import LoopThread
from lightstream.schemas.errors import SettingsError
from lightstream.schemas.interfaces import LightningStore
from lightstream.schemas.types import Span

__all__ = ["FlightRecorderAdapter"]


class FlightRecorderAdapter:
    """Reads a recorder's entries as spans, and adds them to a store.

    Args:
        flight_recorder: has ``get_entries()``, or ``entries``: objects with ``type``, ``timestamp``, ``agent_id``, and
            of a ``policy_check`` ``policy_name`` and ``violated``, of a ``signal`` its ``signal``.
        trace_id_prefix: with an entry's number and agent it decides the ids, so that each entry has the same ones
            whenever it is read.

    Raises:
        SettingsError: it has no entries.
    """

    def __init__(self, flight_recorder: Any, *, trace_id_prefix: str = "agentos") -> None:
        if not (hasattr(flight_recorder, "get_entries") or hasattr(flight_recorder, "entries")):
            raise SettingsError(f"{type(flight_recorder).__name__} has neither get_entries() nor entries.")
        self.recorder = flight_recorder
        self.trace_id_prefix = trace_id_prefix

    def get_spans(self, rollout_id: str = "agentos", attempt_id: str = "agentos") -> list[Span]:
        """All entries, in their order, as spans of an attempt."""
        recorder = self.recorder
        entries: Iterable[Any] = recorder.get_entries() if hasattr(recorder, "get_entries") else recorder.entries
        return [self._span(entry, number, rollout_id, attempt_id) for number, entry in enumerate(entries, start=1)]

    def import_to_store(
        self, store: LightningStore, rollout_id: str | None = None, attempt_id: str | None = None
    ) -> int:
        """Add the entries to an attempt; returns how many there are. Those that are there already stay as they are.

        Args:
            rollout_id, attempt_id: the attempt; ``None``: one of a new rollout, which has succeeded.

        Raises:
            StoreError: there is no such attempt.
        """
        loop = LoopThread("lightstream-flight-recorder", "the adapter")
        return loop.run(lambda: self._import(store, rollout_id, attempt_id))

    async def _import(self, store: LightningStore, rollout_id: str | None, attempt_id: str | None) -> int:
        is_new = rollout_id is None or attempt_id is None
        if rollout_id is None or attempt_id is None:
            rollout = await store.start_rollout({"origin": self.trace_id_prefix})
            rollout_id, attempt_id = rollout.rollout_id, rollout.attempt.attempt_id
        spans = self.get_spans(rollout_id, attempt_id)
        await store.add_many_spans(spans)
        if is_new:
            await store.update_attempt(rollout_id, attempt_id, status="succeeded")
        return len(spans)

    def get_violation_summary(self) -> dict[str, float]:
        """``total_entries``, ``total_violations`` and their ratio ``violation_rate``."""
        spans = self.get_spans()
        violations = sum(bool(span.attributes.get("agent_os.policy_violated")) for span in spans)
        return {
            "total_entries": len(spans),
            "total_violations": violations,
            "violation_rate": violations / len(spans) if spans else 0.0,
        }

    def _span(self, entry: Any, number: int, rollout_id: str, attempt_id: str) -> Span:
        kind, agent = str(getattr(entry, "type", "unknown")), str(getattr(entry, "agent_id", "unknown"))
        attributes: dict[str, Any] = {"agent_os.entry_type": kind, "agent_os.agent_id": agent}
        if kind == "policy_check":
            attributes["agent_os.policy_name"] = str(getattr(entry, "policy_name", "unknown"))
            attributes["agent_os.policy_violated"] = bool(getattr(entry, "violated", False))
        elif kind == "signal":
            attributes["agent_os.signal_type"] = str(getattr(entry, "signal", "unknown"))
        at = _seconds(getattr(entry, "timestamp", None))
        return Span.from_attributes(
            attributes=attributes,
            rollout_id=rollout_id,
            attempt_id=attempt_id,
            sequence_id=number,
            name=f"agent_os.{kind}",
            trace_id=self._digits(agent)[:32],
            span_id=self._digits(f"{agent}-{number}")[:16],
            start_time=at,
            end_time=at,
        )

    def _digits(self, text: str) -> str:
        """Hex digits that the text decides."""
        return hashlib.sha256(f"{self.trace_id_prefix}-{text}".encode()).hexdigest()


def _seconds(timestamp: Any) -> float | None:
    """Seconds since 1970; of a time without a zone, as UTC."""
    if isinstance(timestamp, datetime):
        return (timestamp if timestamp.tzinfo else timestamp.replace(tzinfo=UTC)).timestamp()
    return float(timestamp) if isinstance(timestamp, int | float) else None
