"""How far an assembler came, as its trajectories tell: a worker goes on by that where its group has no offset.

A cluster forgets the offsets of a group that rested for too long (``offsets.retention.minutes``), and people delete
them. Each trajectory says in a header up to which offset of its partition of ``spans`` everything was durable when it
was sent: the offset that the group committed then, or was about to commit.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from confluent_kafka import Message

from lightstream.runtime.kafka import Headers, PartitionReader, decoded, partitions_of
from lightstream.schemas.errors import DecodeError
from lightstream.schemas.records import Trajectory
from lightstream.schemas.topics import TRAJECTORIES

from .context import WorkerContext

logger = logging.getLogger(__name__)

ASSEMBLED = "assembled"
"""Header: ``<topic id of spans>/<partition>/<offset>``. Older writers leave it out."""

FIRST_LOOK_RECORDS = 10_000
"""So many of the last records of each partition are looked at, then ten times as many, until one has the header."""

Identity = tuple[str, str, int]
"""Rollout, attempt and revision of a trajectory."""


@dataclass(frozen=True, slots=True)
class Assembled:
    """Trajectories that the assembler of one partition wrote.

    Attributes:
        position: everything below this offset of ``spans`` was written.
        since: what was written after that became so.
    """

    position: int
    since: frozenset[Identity]


def assembled_header(topic_id: str, partition: int, position: int) -> Headers:
    """The header of a trajectory that is sent now."""
    return [(ASSEMBLED, f"{topic_id}/{partition}/{position}".encode())]


def identity(trajectory: Trajectory) -> Identity:
    """The identity of a trajectory; its repetitions have the same."""
    return trajectory.rollout_id, trajectory.attempt_id, trajectory.revision


def read_assembled(context: WorkerContext, topic_id: str, partition: int) -> Assembled | None:
    """Look through the end of ``trajectories``; ``None`` where none was written by this partition's assembler. Blocks.

    Raises:
        ServiceUnavailableError: the cluster does not answer.
    """
    settings = context.settings
    readers = [
        PartitionReader(settings, TRAJECTORIES, each, group_id=context.group_id)
        for each in partitions_of(settings, TRAJECTORIES)
    ]
    marks = [reader.watermarks() for reader in readers]
    count = FIRST_LOOK_RECORDS
    while True:
        found = [
            (position, message)
            for reader, (_, end) in zip(readers, marks, strict=True)
            for message in reader.records(max(0, end - count))
            if (position := _position(message, topic_id, partition)) is not None
        ]
        if found:
            last = max(position for position, _ in found)
            return Assembled(last, _identities(context, [message for position, message in found if position == last]))
        if all(end - count <= low for low, end in marks):
            return None
        count *= 10


def _position(message: Message, topic_id: str, partition: int) -> int | None:
    headers = message.headers()
    header = dict(headers or {}).get(ASSEMBLED)
    text = header.decode("ascii", "replace") if isinstance(header, bytes) else header or ""
    begin, _, position = text.rpartition("/")
    return int(position) if begin == f"{topic_id}/{partition}" and position.isdecimal() else None


def _identities(context: WorkerContext, messages: Sequence[Message]) -> frozenset[Identity]:
    identities: set[Identity] = set()
    for message in messages:
        try:
            record = decoded(context.codec, message)
        except DecodeError:
            continue  # it is written again, and readers see that it is the same
        if isinstance(record, Trajectory):
            identities.add(identity(record))
    return frozenset(identities)
