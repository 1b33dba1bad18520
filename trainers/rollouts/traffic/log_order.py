"""One order over all partitions of ``trajectories``, which follows from the log and not from how it was read.

Kafka orders a partition alone. Between partitions the records' time stamps decide: a record's place is (the greatest
time stamp of its partition up to it, partition, offset). A record is given out once no other partition can still bring
an earlier one: it has a later one here, or was read to its end after that time.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from lightstream.schemas.records import Trajectory


@dataclass(frozen=True, slots=True)
class Arrival:
    """A trajectory in the log.

    Attributes:
        logged_unix_nano: its time stamp in Kafka.
        order_unix_nano: the greatest time stamp of its partition up to it.
    """

    trajectory: Trajectory
    partition: int
    offset: int
    logged_unix_nano: int
    order_unix_nano: int = 0

    @property
    def place(self) -> tuple[int, int, int]:
        """Its place in the order."""
        return self.order_unix_nano, self.partition, self.offset


class LogOrder:
    """Merges partitions. Not thread-safe.

    Args:
        partitions: all there are.
        floors: of a partition that is read from its middle, the order's time there.
    """

    def __init__(self, partitions: Iterable[int], floors: Mapping[int, int] | None = None) -> None:
        given = floors or {}
        self._floors = {partition: given.get(partition, 0) for partition in partitions}
        self._waiting: dict[int, deque[Arrival]] = {partition: deque() for partition in self._floors}

    def push(self, arrival: Arrival) -> None:
        """Take a record. Records of a partition come in the order of their offsets."""
        floor = max(self._floors.get(arrival.partition, 0), arrival.logged_unix_nano)
        self._floors[arrival.partition] = floor
        placed = Arrival(arrival.trajectory, arrival.partition, arrival.offset, arrival.logged_unix_nano, floor)
        self._waiting.setdefault(arrival.partition, deque()).append(placed)

    def pop(self, quiet_before: Mapping[int, int]) -> Iterator[Arrival]:
        """Give out records in order, as far as it is certain.

        Args:
            quiet_before: partition -> a time: every record of it that is to come has a later time stamp. Partitions
                that are not named may still bring any.
        """
        heads = [(queue[0].place, partition) for partition, queue in self._waiting.items() if queue]
        heapq.heapify(heads)
        while heads:
            place, partition = heapq.heappop(heads)
            if any(not queue and quiet_before.get(other, 0) <= place[0] for other, queue in self._waiting.items()):
                return
            arrival = self._waiting[partition].popleft()
            yield arrival
            if self._waiting[partition]:
                heapq.heappush(heads, (self._waiting[partition][0].place, partition))

    def next_offsets(self, read: Mapping[int, int]) -> dict[int, int]:
        """Partition -> the first offset that was not given out; ``read`` where nothing waits."""
        return {
            partition: self._waiting[partition][0].offset if self._waiting.get(partition) else offset
            for partition, offset in read.items()
        }

    @property
    def waits(self) -> bool:
        """Whether a record is here that was not given out."""
        return any(self._waiting.values())
