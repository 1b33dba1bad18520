"""What a client says a hundred times a second is in the log once in a while, and counted."""

from __future__ import annotations

import logging
from contextlib import closing

import pytest

from lightstream.broker import EmbeddedBroker
from lightstream.runtime.clock import ManualClock
from lightstream.runtime.settings import Settings
from lightstream.stream_processors.worker.log_throttle import LogThrottle, throttled
from tests.support.waiting import eventually

from .harness import WorkerProcess


def test_one_line_of_a_kind_per_interval_and_the_rest_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    logger = logging.getLogger("client")
    with closing(LogThrottle(logger, interval_s=10.0, clock=clock)) as throttle:
        logger.addHandler(throttle)
        logger.propagate = False
        conn = logging.getLogger("client.conn")
        for port in range(50):
            conn.error("Cannot connect to port %s", port)
            conn.warning("Cannot connect to port %s", port)
            clock.advance(0.1)
        conn.error("Something else")
        assert caplog.messages == ["Cannot connect to port 0", "Cannot connect to port 0", "Something else"]
        clock.advance(5.0)
        conn.error("Cannot connect to port %s", 7)
        logger.removeHandler(throttle)
        logger.propagate = True
    assert caplog.messages[3:] == [
        "Cannot connect to port 7 (49 more like this in the last 10 s)",
        "Cannot connect to port # (49 more like this held back)",  # the warnings, at the end
    ]


def test_afterwards_all_is_said_as_before(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("client")
    with throttled("client"):
        logger.error("again")
        logger.error("again")
    logger.error("again")
    assert caplog.messages == ["again", "again (1 more like this held back)", "again"]


def test_a_worker_without_its_broker_keeps_its_log_short(
    private_broker: EmbeddedBroker, private_settings: Settings
) -> None:
    with WorkerProcess(private_settings) as worker:
        private_broker.kill()
        eventually(lambda: _counts_for_aiokafka(worker), what="the worker counts what it does not say")
        private_broker.start()
        assert worker.terminate() == 0


def _counts_for_aiokafka(worker: WorkerProcess) -> bool:
    return any(" aiokafka" in line and "more like this" in line for line in worker.output.splitlines())
