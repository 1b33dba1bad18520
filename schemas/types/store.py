"""Answers of stores about themselves, about their log, and page by page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Self, TypedDict, TypeVar, overload

from lightstream.schemas.errors import StoreError

from .base import JsonModel


class LightningStoreCapabilities(TypedDict, total=False):
    """Capabilities of a store; a missing key means that it lacks one.

    Keys: ``thread_safe`` (usable from several threads), ``async_safe`` (from several tasks), ``zero_copy`` (an object
    handed to another process is still the same store), ``otlp_traces`` (takes OTLP/HTTP).
    """

    thread_safe: bool
    async_safe: bool
    zero_copy: bool
    otlp_traces: bool


class LightningStoreStatistics(TypedDict, total=False):
    """Sizes of a store. ``uptime`` is in seconds; ``total_span_bytes`` is an estimate."""

    name: str
    total_rollouts: int
    total_attempts: int
    total_spans: int
    total_resources: int
    total_workers: int
    uptime: float
    total_span_bytes: int
    eviction_threshold_bytes: int
    safe_threshold_bytes: int
    memory_capacity_bytes: int


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
        """True if ``other`` is of the same log and contains no later offset."""
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


T = TypeVar("T")


class PaginatedResult(JsonModel, Sequence[T], Generic[T]):
    """The items of a page, as a sequence, and how many there are in all.

    Attributes:
        items: what is on the page.
        limit: most items asked for; -1 for all.
        offset: items before this page.
        total: items that match, on whatever page.
    """

    items: Sequence[T]
    limit: int
    offset: int
    total: int

    def __len__(self) -> int:
        return len(self.items)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[T]: ...
    def __getitem__(self, index: int | slice) -> T | Sequence[T]:
        return self.items[index]

    def __iter__(self) -> Iterator[T]:  # type: ignore[override]  # a sequence's items; pydantic's would be its fields
        return iter(self.items)

    def __repr__(self) -> str:
        end = "" if self.limit == -1 else self.offset + self.limit
        first = repr(self.items[0]) if self.items else "empty"
        shown = f"[{first}, ...]" if len(self.items) > 1 else first
        return f"<PaginatedResult ({self.offset}:{end} of {self.total}) {shown}>"
