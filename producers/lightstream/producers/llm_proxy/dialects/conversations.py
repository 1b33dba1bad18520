"""What OpenAI's responses keep on the server: conversations, for requests that go on from an earlier response."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic_core import to_json

__all__ = ["CONVERSATIONS_BYTES_MAX", "Conversations"]

CONVERSATIONS_BYTES_MAX = 256 * 1024 * 1024
"""25,000 turns of 10 KB; the oldest are forgotten beyond. OpenAI keeps them for 30 days; an agent needs minutes."""


@dataclass(frozen=True, slots=True)
class _Turn:
    previous: str | None
    items: Sequence[Any]
    size_bytes: int


class Conversations:
    """Turns by the id of their response, in memory. Each holds what it added, and the one that it went on from."""

    def __init__(self, bytes_max: int = CONVERSATIONS_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._turns: OrderedDict[str, _Turn] = OrderedDict()

    def keep(self, response_id: str, previous: str | None, items: Sequence[Any]) -> None:
        """Remember a turn: the items of its input, then those of its output."""
        self._forget(response_id)
        turn = _Turn(previous, items, len(to_json(items)))
        self._turns[response_id] = turn
        self._bytes += turn.size_bytes
        while self._bytes > self._bytes_max:
            self._forget(next(iter(self._turns)))

    def until(self, response_id: str) -> list[Any]:
        """All items of the conversation up to and with that response.

        Raises:
            ValueError: it is not known, or a turn before it is not any more.
        """
        turns: list[_Turn] = []
        following: str | None = response_id
        seen: set[str] = set()  # a model server may repeat its ids
        while following is not None:
            turn = None if following in seen else self._turns.get(following)
            seen.add(following)
            if turn is None:
                raise ValueError(
                    f"previous_response_id {response_id!r}: response {following!r} is not known here (any more); "
                    "send the whole input"
                )
            self._turns.move_to_end(following)
            turns.append(turn)
            following = turn.previous
        return [item for turn in reversed(turns) for item in turn.items]

    def _forget(self, response_id: str) -> None:
        turn = self._turns.pop(response_id, None)
        if turn is not None:
            self._bytes -= turn.size_bytes
