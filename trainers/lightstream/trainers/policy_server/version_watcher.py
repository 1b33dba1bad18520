"""Follows the ``resources`` topic: every committed record with a checkpoint becomes a version of the policy."""

from __future__ import annotations

import logging
import threading

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from lightstream.runtime.kafka import consumer_config
from lightstream.runtime.schema_registry import codec_for
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import DecodeError
from lightstream.schemas.records import ResourcesRecord
from lightstream.schemas.topics import RESOURCES

from .policy_version import NEWEST, Versions

__all__ = ["VersionWatcher"]

logger = logging.getLogger(__name__)

POLL_S = 0.2
"""A record wakes the poll at once; this bounds how long a stop takes to be noticed."""

PAUSE_S = 0.002
"""No record for this long after some: what was read is the newest, and worth loading."""

FETCH_WAIT_MS = 500
"""A record ends the broker's wait at once; this is how often an idle topic is asked about."""

PARTITION = 0
"""``resources`` has one partition, so that "newest" has one order."""

FIRST_OFFSET = 0
"""All of it is read at each start: it is compacted, and only the newest version is loaded."""


class VersionWatcher:
    """Announces versions and loads the newest ahead of the first request for it, in a thread of its own.

    Args:
        settings: names the cluster; its absence is waited out.
        versions: what to announce to.
        run_id: follow that run only; empty follows every run (the newest record of a name wins).
    """

    def __init__(self, settings: Settings, versions: Versions, *, run_id: str = "") -> None:
        self._settings = settings
        self._versions = versions
        self._run_id = run_id
        self._codec = codec_for(settings)
        self._stopping = threading.Event()
        versions.is_catching_up = True
        self._thread = threading.Thread(target=self._run, name="lightstream-resources", daemon=True)

    def start(self) -> None:
        """Begin to read, from the topic's first record."""
        self._thread.start()

    def stop(self, timeout_s: float = 10.0) -> None:
        """Stop reading."""
        self._stopping.set()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        config = consumer_config(self._settings, group_id="lightstream-policy", read_committed=True)
        consumer = Consumer(config | {"fetch.wait.max.ms": FETCH_WAIT_MS, "enable.partition.eof": True})
        topic = RESOURCES.full_name(self._settings.topic_prefix)
        consumer.assign([TopicPartition(topic, PARTITION, FIRST_OFFSET)])
        news = False
        try:
            while not self._stopping.is_set():
                message = consumer.poll(PAUSE_S if news else POLL_S)
                if message is not None:
                    news = self._read(message) or news
                elif news:
                    self._versions.load_newest()
                    news = False
        finally:
            consumer.close()

    def _read(self, message: Message) -> bool:
        """Take one record in; returns whether it announced a version."""
        error = message.error()
        if error is not None and error.code() == KafkaError._PARTITION_EOF:
            if self._versions.is_catching_up:
                self._versions.caught_up()
            return False
        if error is not None:
            logger.warning("the resources topic cannot be read now: %s", error)  # librdkafka tries again by itself
            return False
        try:
            record = self._codec.decode(message.value())
        except DecodeError as undecodable:  # the view reports it as a dead letter
            logger.warning("record %s of resources is not readable: %s", message.offset(), undecodable)
            return False
        if not isinstance(record, ResourcesRecord) or not record.checkpoint_url:
            return False
        if self._run_id and record.run_id != self._run_id:
            return False
        name = record.model or f"{NEWEST}@{record.version}"
        self._versions.announce(name, record.version, record.checkpoint_url, record.resources_id)
        return True
