"""What librdkafka says goes to Python's logging."""

from __future__ import annotations

import logging

import pytest
from confluent_kafka import Producer

from lightstream.runtime.kafka import producer_config
from lightstream.runtime.kafka.client_log import CLIENT_LOG
from lightstream.runtime.settings import Settings
from tests.support.waiting import eventually


@pytest.mark.parametrize(
    ("address", "said", "level"),
    [("127.0.0.1:1", "Connection refused", logging.DEBUG), ("nobody.invalid:9092", "nobody.invalid", logging.ERROR)],
)
def test_its_lines_have_the_level_that_they_deserve(
    address: str, said: str, level: int, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    producer = Producer(producer_config(Settings.load(kafka_bootstrap_servers=address)))

    def levels() -> set[int]:
        """Of its own lines: clients that other tests of this process left behind have theirs."""
        lines = [(line.levelno, line.getMessage()) for line in caplog.records]
        return {level for level, line in lines if f"{address}/" in line and said in line}

    with caplog.at_level(logging.DEBUG):
        eventually(lambda: producer.poll(0.1) or levels())
    assert levels() == {level}
    assert address not in capfd.readouterr().err


def test_a_refused_login_is_not_hidden(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        CLIENT_LOG.log(logging.ERROR, "%s [%s] %s", "FAIL", "p", "SASL authentication error: Authentication failed")
    assert "Authentication failed" in caplog.text
