"""What the records of ``rollouts`` say in headers, for readers who need not decode them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ..records import RolloutStatus

__all__ = [
    "ANSWERS",
    "HEAD_LENGTH",
    "QUEUE",
    "STATE",
    "Place",
    "QueueSummary",
    "answers_header",
    "read_answers",
    "read_state",
    "state_header",
]

QUEUE = "queue"
"""Header: the queue of the record's partition after the facts that were judged together with the record's. Absent where
it is as before, or where the records after it say it."""

ANSWERS = "answers"
"""Header: the request that the record answers, and how many records of the answer are still to come."""

STATE = "state"
"""Header: the source offset of the state in the record, and its status."""

HEAD_LENGTH = 8
"""Places shown of the queue's head: enough to merge the partitions' queues in order for as many requests at a time."""

Place: TypeAlias = "tuple[int, int, int]"
"""Compares as the queue goes: negated priority, 0 for a retry, time of the state's ``queue_unix_nano``."""


@dataclass(frozen=True, slots=True)
class QueueSummary:
    """How many rollouts wait in a partition, and the places of the first :data:`HEAD_LENGTH` of them."""

    waiting: int
    head: Sequence[Place]

    def encode(self) -> bytes:
        """ASCII: ``waiting;priority,first,time;…``."""
        return ";".join([str(self.waiting), *(f"{p},{f},{t}" for p, f, t in self.head)]).encode()

    @classmethod
    def decode(cls, header: bytes) -> QueueSummary:
        """Inverse of :meth:`encode`.

        Raises:
            ValueError: the header is not one of ours.
        """
        waiting, *places = header.decode("ascii").split(";")
        head: list[Place] = []
        for place in places:
            priority, first, time = place.split(",")
            head.append((int(priority), int(first), int(time)))
        return cls(int(waiting), head)


def answers_header(request_id: str, still_to_come: int) -> bytes:
    """The value of :data:`ANSWERS`."""
    return f"{still_to_come},{request_id}".encode()


def read_answers(header: bytes) -> tuple[str, int]:
    """Inverse of :func:`answers_header`.

    Raises:
        ValueError: the header is not one of ours.
    """
    still_to_come, request_id = header.decode().split(",", 1)
    return request_id, int(still_to_come)


def state_header(source_offset: int, status: RolloutStatus) -> bytes:
    """The value of :data:`STATE`."""
    return f"{source_offset},{status.value}".encode()


def read_state(header: bytes) -> tuple[int, RolloutStatus]:
    """Inverse of :func:`state_header`.

    Raises:
        ValueError: the header is not one of ours.
    """
    source_offset, status = header.decode().split(",", 1)
    return int(source_offset), RolloutStatus(status)
