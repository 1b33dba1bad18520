"""A topic as a list: every record with its place."""

from __future__ import annotations

from dataclasses import dataclass

from confluent_kafka import Consumer, TopicPartition

from lightstream.runtime.kafka import PartitionReader, consumer_config, logged_unix_nano
from lightstream.runtime.settings import Settings
from lightstream.schemas.codec import Codec
from lightstream.schemas.records import Record
from lightstream.schemas.topics import Topic

CODEC = Codec()
POLL_TIMEOUT_S = 0.05
GROUP = "tests"


@dataclass(frozen=True, slots=True)
class Logged:
    """A record; ``None`` where the value is empty. Its time is the log's, in whole milliseconds."""

    partition: int
    offset: int
    key: str
    record: Record | None
    logged_unix_nano: int


class LogTail:
    """A topic from its beginning to wherever it was read last. Rides out a broker's restart."""

    def __init__(self, settings: Settings, topic: Topic) -> None:
        self.read: list[Logged] = []
        self._settings, self._topic = settings, topic
        self._consumer = Consumer(consumer_config(settings, group_id=GROUP))
        name = topic.full_name(settings.topic_prefix)
        self._places = [
            TopicPartition(name, partition, 0)  # librdkafka begins half a second later where it has to ask for it
            for partition in range(topic.partitions(settings.topic_partitions))
        ]
        self._consumer.assign(self._places)

    def poll(self) -> list[Logged]:
        """What came since; empty where there is nothing just now."""
        new: list[Logged] = []
        while (message := self._consumer.poll(POLL_TIMEOUT_S)) is not None:
            if message.error() is None:
                value, key = message.value(), (message.key() or b"").decode()
                record = None if value is None else CODEC.decode(value)
                new.append(
                    Logged(message.partition() or 0, message.offset() or 0, key, record, logged_unix_nano(message))
                )
        self.read.extend(new)
        return new

    def read_to_end(self) -> list[Logged]:
        """All records up to the present end. Waits for a broker that starts again just now."""
        ends = {
            place.partition: PartitionReader(self._settings, self._topic, place.partition, group_id=GROUP).watermarks()[
                1
            ]
            for place in self._places
        }
        # Where nothing was ever written, nothing is read, and there is no position.
        while any(
            place.offset < end for place in self._consumer.position(self._places) if (end := ends[place.partition])
        ):
            self.poll()
        return self.read

    def close(self) -> None:
        self._consumer.close()
