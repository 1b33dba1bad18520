"""What a worker asks while it recovers: a broker's restart at that moment is waited for."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

from confluent_kafka import Consumer, TopicPartition

from lightstream.broker import EmbeddedBroker
from lightstream.runtime.kafka import consumer_config
from lightstream.runtime.settings import Settings
from lightstream.schemas.topics import ROLLOUT_EVENTS
from lightstream.stream_processors.worker.log_reader import LogReader
from tests.support.waiting import eventually

GROUP = "recovering"
COMMITTED = 7
READERS = 4
"""Of which, at a restart, nearly all are in the middle of a question: each asks without a pause."""


def test_committed_offsets_are_waited_for_while_the_broker_restarts(
    private_broker: EmbeddedBroker, private_settings: Settings
) -> None:
    """A broker that is back, and has not loaded its groups, says that it does not coordinate this one."""
    place = TopicPartition(ROLLOUT_EVENTS.full_name(private_settings.topic_prefix), 0, COMMITTED)
    with closing(Consumer(consumer_config(private_settings, group_id=GROUP))) as consumer:
        consumer.commit(offsets=[place], asynchronous=False)
    over = threading.Event()
    answers: list[int] = []

    def ask() -> None:
        while not over.is_set():
            answers.append(LogReader(private_settings, GROUP, ROLLOUT_EVENTS, 0).committed())

    def has_answered_again() -> bool:
        return len(answers) >= before + 2 * READERS or any(reader.done() for reader in readers)

    with ThreadPoolExecutor(READERS) as threads:
        readers = [threads.submit(ask) for _ in range(READERS)]
        try:
            for stop in (private_broker.stop, private_broker.kill):
                before = len(answers)
                eventually(has_answered_again, what="answers before the restart")
                stop()
                private_broker.start()
                before = len(answers)
                eventually(has_answered_again, what="answers after the restart")
        finally:
            over.set()
        for reader in readers:
            reader.result()
    assert set(answers) == {COMMITTED}
