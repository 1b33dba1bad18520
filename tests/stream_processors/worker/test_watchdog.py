"""A worker that stands still while Kafka has work for it is ended; one that only waits for Kafka is not."""

from __future__ import annotations

import pytest
from faust.types import TP

from lightstream.runtime.clock import ManualClock
from lightstream.runtime.kafka import KafkaPublisher
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import LightstreamError
from lightstream.schemas.topics import SPANS
from lightstream.stream_processors.worker.watchdog import Watchdog, stall_s_max

from .harness import span


@pytest.fixture
def place(settings: Settings) -> TP:
    """A partition with one record."""
    publisher = KafkaPublisher(settings, linger_ms=0.0)
    position = publisher.publish(SPANS, "r", span("r")).result()
    publisher.close()
    return TP(SPANS.full_name(settings.topic_prefix), position.partition)


def test_a_partition_that_does_not_move_ends_the_worker(settings: Settings, place: TP) -> None:
    clock = ManualClock()
    watchdog = Watchdog(settings, clock)
    watchdog.check({place: 0}, rebalancing=False)
    clock.advance(stall_s_max(settings))
    watchdog.check({place: 0}, rebalancing=False)
    clock.advance(1)
    with pytest.raises(LightstreamError, match="offset 0"):
        watchdog.check({place: 0}, rebalancing=False)


def test_a_partition_that_is_read_to_its_end_may_rest(settings: Settings, place: TP) -> None:
    clock = ManualClock()
    watchdog = Watchdog(settings, clock)
    for _ in range(3):
        watchdog.check({place: 1}, rebalancing=False)
        clock.advance(stall_s_max(settings) + 1)


def test_waiting_for_partitions_has_an_end_too(settings: Settings, place: TP) -> None:
    clock = ManualClock()
    watchdog = Watchdog(settings, clock)
    watchdog.check({}, rebalancing=True)
    clock.advance(stall_s_max(settings) + 1)
    with pytest.raises(LightstreamError, match="no partitions"):
        watchdog.check({}, rebalancing=True)


def test_a_worker_that_may_wait_longer_for_kafka_is_given_longer(settings: Settings, place: TP) -> None:
    clock = ManualClock()
    watchdog = Watchdog(settings.model_copy(update={"publish_timeout_s": 300.0}), clock)
    watchdog.check({place: 0}, rebalancing=False)
    clock.advance(301)
    watchdog.check({place: 0}, rebalancing=False)
    clock.advance(30)
    with pytest.raises(LightstreamError, match="for 330 s"):
        watchdog.check({place: 0}, rebalancing=False)


def test_while_kafka_is_silent_nothing_counts(settings: Settings, place: TP) -> None:
    clock = ManualClock()
    watchdog = Watchdog(settings.model_copy(update={"kafka_bootstrap_servers": "127.0.0.1:1"}), clock)
    for _ in range(2):
        watchdog.check({place: 0}, rebalancing=True)
        clock.advance(stall_s_max(settings) + 1)
