"""Topics of a test on the broker that all share, deleted when it is over."""

from __future__ import annotations

import uuid
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient

from lightstream.runtime.kafka import create_topics
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import ServiceUnavailableError
from lightstream.schemas.topics import TOPICS
from tests.support.waiting import eventually


def settings_on(kafka_servers: str, folder: Path, **settings: Any) -> Settings:
    """Settings with a topic prefix of their own on that broker, and two partitions; the topics are not made."""
    fields: dict[str, Any] = {"topic_prefix": f"t{uuid.uuid4().hex[:12]}.", "topic_partitions": 2} | settings
    return Settings.load(kafka_bootstrap_servers=kafka_servers, data_dir=folder, **fields)


def _are_made(settings: Settings) -> bool:
    """A busy broker may take longer than it is given: what is there by then is left out the next time."""
    try:
        create_topics(settings)
    except ServiceUnavailableError as error:
        print(f"asked again: {error}")
        return False
    return True


class TopicSets:
    """Makes the topics of the next test while this one runs."""

    def __init__(self, kafka_servers: str) -> None:
        self._kafka_servers = kafka_servers
        self._maker = ThreadPoolExecutor(1, thread_name_prefix="topics")
        self._next: Future[str] | None = None

    def take(self) -> str:
        """Return the prefix of topics with two partitions each, which nobody has used."""
        made = self._next or self._maker.submit(self._make)
        self._next = self._maker.submit(self._make)
        return made.result()

    def _make(self) -> str:
        settings = settings_on(self._kafka_servers, Path())
        eventually(partial(_are_made, settings), what="the topics of a test")
        return settings.topic_prefix

    def delete_unused(self, admin: AdminClient) -> None:
        """Delete those that nobody took. Call it once, at the end."""
        self._maker.shutdown()
        if self._next is not None:
            delete_topics(admin, self._next.result())


def delete_topics(admin: AdminClient, prefix: str) -> None:
    """Ask for it and do not wait. A broker takes ever longer for everything the more topics it has: with 400 sets of
    them left behind, making the next took three times the processor time."""
    admin.delete_topics([topic.full_name(prefix) for topic in TOPICS])
