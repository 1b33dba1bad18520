"""How far in the log somebody has seen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from ..errors import StoreError

__all__ = ["LogPositions"]


@dataclass(frozen=True, slots=True)
class LogPositions:
    """Records that somebody has seen, or an effect of them.

    Attributes:
        log: which log; positions of different logs have nothing to do with each other. Empty for none.
        offsets: topic (without the prefix) -> partition -> offset of the last record.
    """

    log: str = ""
    offsets: Mapping[str, Mapping[int, int]] = field(default_factory=dict[str, dict[int, int]])

    def merged(self, other: LogPositions) -> LogPositions:
        """The later of both, for each partition. Where ``other`` is of another log, it stands alone."""
        if other.log != self.log or other == self:
            return other if other.log else self
        offsets = {topic: dict(places) for topic, places in self.offsets.items()}
        for topic, places in other.offsets.items():
            mine = offsets.setdefault(topic, {})
            for partition, offset in places.items():
                mine[partition] = max(offset, mine.get(partition, -1))
        return LogPositions(self.log, offsets)

    def covers(self, other: LogPositions) -> bool:
        """Whether ``other`` is of the same log, and has seen nothing beyond."""
        return other.log == self.log and all(
            offset <= self.offsets.get(topic, {}).get(partition, -1)
            for topic, places in other.offsets.items()
            for partition, offset in places.items()
        )

    def to_text(self) -> str:
        """One line of ASCII: ``log;topic:partition=offset,…;…``. Empty without offsets."""
        topics = [
            f"{topic}:{','.join(f'{partition}={offset}' for partition, offset in sorted(places.items()))}"
            for topic, places in sorted(self.offsets.items())
            if places
        ]
        return ";".join([self.log, *topics]) if topics else ""

    @classmethod
    def from_text(cls, text: str) -> Self:
        """The inverse of :meth:`to_text`.

        Raises:
            StoreError: it is not such a line.
        """
        log, *topics = text.split(";")
        offsets: dict[str, dict[int, int]] = {}
        try:
            for line in topics:
                topic, _, places = line.rpartition(":")
                pairs = [place.split("=") for place in places.split(",")]
                offsets[topic] = {int(partition): int(offset) for partition, offset in pairs}
        except ValueError as error:
            raise StoreError(f"{text!r:.200} is not a list of log positions") from error
        return cls(log, offsets)
