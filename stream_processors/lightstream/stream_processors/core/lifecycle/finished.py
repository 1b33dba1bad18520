"""Where the life cycle keeps rollouts that are over: late events about them still get an answer."""

from __future__ import annotations

from typing import Protocol

__all__ = ["FinishedInMemory", "FinishedRollouts"]


class FinishedRollouts(Protocol):
    """States of finished rollouts, as their Avro bytes."""

    def get(self, rollout_id: str) -> bytes | None:
        """The last state that was put, or ``None``."""
        ...

    def put(self, rollout_id: str, source_offset: int, state: bytes) -> None:
        """Keep a state, which reflects the events up to ``source_offset``, in place of any that reflects fewer."""
        ...


class FinishedInMemory:
    """All of them in memory, about half a kilobyte each."""

    def __init__(self) -> None:
        self._states: dict[str, tuple[int, bytes]] = {}

    def get(self, rollout_id: str) -> bytes | None:
        kept = self._states.get(rollout_id)
        return None if kept is None else kept[1]

    def put(self, rollout_id: str, source_offset: int, state: bytes) -> None:
        kept = self._states.get(rollout_id)
        if kept is None or kept[0] < source_offset:
            self._states[rollout_id] = source_offset, state
