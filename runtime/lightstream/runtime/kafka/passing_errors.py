"""Errors that pass by themselves while a broker restarts, and asking again until they have."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException

from .unavailable import kafka_unavailable

__all__ = ["ANSWER_TIMEOUT_S", "PASSING_ERRORS", "answered"]

T = TypeVar("T")

ANSWER_TIMEOUT_S = 30.0
"""For one answer of the cluster."""

PATIENCE_S = 60.0
"""How long is asked again; longer than a broker takes to restart, though on a busy machine that is half a minute."""

PASSING_ERRORS = frozenset(
    {
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._DESTROY_BROKER,
        KafkaError._WAIT_COORD,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._UNKNOWN_TOPIC,
    }
)
"""What a cluster answers while a broker restarts. librdkafka tries some of these again by itself, but not all: a broker
that is back before it has loaded the groups answers ``NOT_COORDINATOR`` to whoever asked it before it went, and it
lists topics before it serves their partitions. What was asked of the bootstrap connection in the moment in which the
broker is known by its number is ``_DESTROY_BROKER``."""

RETRY_INTERVAL_S = 0.2


def answered(ask: Callable[[], T], *, what: str) -> T:
    """The answer to ``ask``, which is asked again for as long as a broker's restart may take.

    Args:
        what: what failed if no answer comes, as the beginning of a sentence.

    Raises:
        ServiceUnavailableError: no answer within a minute, or an error that does not pass by itself.
    """
    until_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            return ask()
        except KafkaException as error:
            if error.args[0].code() not in PASSING_ERRORS or time.monotonic() > until_s:
                raise kafka_unavailable(error, what=what) from error
        time.sleep(RETRY_INTERVAL_S)
