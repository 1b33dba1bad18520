"""Headers of the records of ``rollouts``, by which a reader decides whether to decode one."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from lightstream.schemas.records import RolloutStatus

QUEUE = "queue"
"""Header: the queues of the record's partition that have changed, run by run and that of all runs, after the events
that were applied together with the record's. Absent where they are as before, or where the records after it say it."""

ANSWERS = "answers"
"""Header: the request that the record answers, and how many records of the answer are still to come."""

STATE = "state"
"""Header: the source offset of the state in the record, and its status."""

HEAD_LENGTH = 8
"""Most entries of the queue's head in a header: enough to merge the partitions' queues for as many requests at once."""

Place: TypeAlias = "tuple[int, int, int]"
"""Sort key of the queue: negated priority, 0 for a retry, the state's ``queue_unix_nano``."""


@dataclass(frozen=True, slots=True)
class QueueSummary:
    """The number of waiting rollouts of a run in a partition, and the first of them (:data:`HEAD_LENGTH`)."""

    waiting: int
    head: Sequence[Place]


def queues_header(queues: Mapping[str, QueueSummary]) -> bytes:
    """The value of :data:`QUEUE`: run id (``*``: all runs) to how many wait and their places, as JSON."""
    summaries = {run_id: [queue.waiting, *queue.head] for run_id, queue in queues.items()}
    return json.dumps(summaries, separators=(",", ":"), ensure_ascii=False).encode()


def read_queues(header: bytes) -> dict[str, QueueSummary]:
    """Inverse of :func:`queues_header`.

    Raises:
        ValueError: the header is not one of ours.
    """
    try:
        summaries = json.loads(header)
        return {
            run_id: QueueSummary(int(waiting), [(int(p), int(f), int(t)) for p, f, t in head])
            for run_id, (waiting, *head) in summaries.items()
        }
    except (AttributeError, TypeError) as error:
        raise ValueError(f"a header of queues is {header!r:.200}") from error


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
