"""Offsets of the log: rejects client-supplied ones beyond its end, and tells one log from another."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, TypeAlias

from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition

from confluent_kafka.admin import AdminClient  # isort: skip
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]  # pyright: ignore[reportPrivateImportUsage]  # public, but missing in __all__  # isort: skip

from lightstream.runtime.kafka import common_config, connected
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import ServiceUnavailableError, StoreError
from lightstream.schemas.topics import ROLLOUTS, topic_named

REQUEST_TIMEOUT_S = 5.0
"""Clients of a server ask again."""

ID_TIMEOUT_S = 10.0

HELD_S = 1.0
"""An end offset proves for so long that the records before it are there. Beyond it, Kafka is asked again."""

PARTITIONS_MAX = 2**31

LATEST: Any = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # the library leaves it untyped

Place: TypeAlias = "tuple[str, int]"
EndsOf: TypeAlias = Callable[[str, Iterable[int]], dict[int, int]]


class EndOffsets:
    """Checks offsets that clients name. To ask Kafka takes two milliseconds or, at worst, some seconds.

    Args:
        ends_of: of some partitions of a topic the next offset to be written; those that do not exist are left out.
    """

    def __init__(self, ends_of: EndsOf) -> None:
        self._ends_of = ends_of
        self._known: dict[Place, tuple[int, float]] = {}

    def check(self, topic: str, offsets: Mapping[int, int]) -> None:
        """At each of these offsets of partitions there is a record, or was.

        Raises:
            StoreError: there is no such partition, or it ends before.
            ServiceUnavailableError: Kafka does not answer.
        """
        unproved = {place: offset for place, offset in offsets.items() if not self._proves(topic, place, offset)}
        if not unproved:
            return
        ends = self._ends_of(topic, [partition for partition in unproved if 0 <= partition < PARTITIONS_MAX])
        now_s = time.monotonic()
        self._known.update({(topic, partition): (end, now_s) for partition, end in ends.items()})
        for partition, offset in unproved.items():
            end = ends.get(partition)
            if end is None or offset >= end:
                missing = "there is no such partition" if end is None else f"the next record there will be {end}"
                raise StoreError(
                    f"record {offset} of {topic}/{partition} is said to have been seen, but {missing}.",
                    next_step="Did Kafka lose records? Restart the client that says so.",
                )

    def _proves(self, topic: str, partition: int, offset: int) -> bool:
        end, asked_s = self._known.get((topic, partition), (0, 0.0))
        return offset < end and time.monotonic() - asked_s <= HELD_S


def ends_in_kafka(settings: Settings) -> EndsOf:
    """A function that asks the cluster that ``settings`` name."""
    clients: list[AdminClient] = []

    def client() -> AdminClient:
        """Made when it is first needed: most stores are never told of what others have seen."""
        if not clients:
            admin = AdminClient(common_config(settings))
            admin.list_topics(timeout=REQUEST_TIMEOUT_S)  # else its first question may take three seconds
            clients.append(admin)
        return clients[0]

    def ends_of(topic: str, partitions: Iterable[int]) -> dict[int, int]:
        name = topic_named(topic).full_name(settings.topic_prefix)
        # The first partition is there: without it, no leader could mean an unknown partition or a broker that starts.
        requests = {TopicPartition(name, partition): LATEST for partition in {0, *partitions}}
        ends: dict[int, int] = {}
        try:
            for place, answer in client().list_offsets(requests, request_timeout=REQUEST_TIMEOUT_S).items():
                if (end := _end(answer)) is not None:
                    ends[place.partition] = end
        except KafkaException as error:
            raise ServiceUnavailableError(f"Kafka does not tell the log's end offsets: {error!r}.") from error
        return ends

    return ends_of


def _end(answer: Future[Any]) -> int | None:
    try:
        return int(answer.result().offset)
    except KafkaException as error:
        if error.args[0].code() == KafkaError._UNKNOWN_PARTITION:  # confluent-kafka's public name for it
            return None
        raise


def log_id(settings: Settings) -> str:
    """The id that the cluster gave the topic ``rollouts``: another one where that was deleted and made again.

    Raises:
        AccessRefusedError: the cluster does not let this client in.
        ServiceUnavailableError: the cluster does not answer.
    """
    name = ROLLOUTS.full_name(settings.topic_prefix)
    admin, _ = connected(settings)
    try:
        described = admin.describe_topics(TopicCollection([name]), request_timeout=ID_TIMEOUT_S)
        return str(described[name].result().topic_id)
    except KafkaException as error:
        raise ServiceUnavailableError(f"Kafka does not answer: {error}.") from error
