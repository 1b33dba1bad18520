"""Errors of readers are logged once, with their end."""

from __future__ import annotations

import logging

import pytest
from confluent_kafka import KafkaError

from lightstream.runtime.kafka.read_errors import QUIET_S, ReadErrors

AWAY = KafkaError(KafkaError._ALL_BROKERS_DOWN)


def test_late_news_of_an_outage_is_no_second_one(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    errors = ReadErrors(["spans"], "User:ANONYMOUS")
    errors.reported(AWAY, None, 0.0)
    errors.read("spans", 4.0)
    errors.described("spans", AWAY, 4.5)
    assert not errors.is_waiting
    assert len(caplog.records) == 2, "its beginning and its end"
    errors.reported(AWAY, None, 4.0 + QUIET_S)
    assert errors.is_waiting
    assert len(caplog.records) == 3, "another outage"


def test_an_outage_at_the_start_is_logged_at_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    ReadErrors(["spans"], "User:ANONYMOUS").reported(AWAY, None, 0.0)
    assert "'spans' cannot be read" in caplog.text
