"""A line that a client writes a hundred times a second is in the log once in a while, and counted."""

from __future__ import annotations

import logging

import pytest

from lightstream.broker import EmbeddedBroker
from lightstream.runtime.clock import ManualClock
from lightstream.runtime.settings import Settings
from lightstream.stream_processors.worker.process import RepeatedLines
from tests.support.waiting import eventually

from .harness import WorkerProcess


def test_a_line_is_written_once_per_interval_and_the_rest_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    lines = RepeatedLines("client", clock)
    caplog.handler.addFilter(lines)
    try:
        conn, other = logging.getLogger("client.conn"), logging.getLogger("other")
        for port in range(50):
            conn.error("Cannot connect to port %s", port)
            conn.warning("Cannot connect to port %s", port)
            clock.advance(0.1)
        conn.error("Something else")
        assert caplog.messages == ["Cannot connect to port 0", "Cannot connect to port 0", "Something else"]
        clock.advance(5.0)
        conn.error("Cannot connect to port %s", 7)
        conn.error("Cannot connect to port %s", 8)
        for _ in range(2):
            other.error("again")
    finally:
        caplog.handler.removeFilter(lines)
    assert caplog.messages[3:] == ["Cannot connect to port 7 (49 more like this left out)", "again", "again"]


def test_a_worker_without_its_broker_keeps_its_log_short(
    private_broker: EmbeddedBroker, private_settings: Settings
) -> None:
    with WorkerProcess(private_settings) as worker:
        private_broker.kill()
        eventually(lambda: _counts_for_aiokafka(worker), what="the worker counts what it does not write")
        private_broker.start()
        assert worker.terminate() == 0


def _counts_for_aiokafka(worker: WorkerProcess) -> bool:
    return any(" aiokafka" in line and "more like this" in line for line in worker.output.splitlines())
