"""Crashes at drawn moments: rows and offsets agree, and nothing is missing or double in the end."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

import duckdb
import pytest

from lightstream.broker import EmbeddedBroker
from lightstream.runtime.kafka import KafkaPublisher
from lightstream.runtime.settings import Settings
from lightstream.schemas.codec import Codec
from lightstream.schemas.topics import SPANS
from lightstream.store_views.client import ViewClient
from lightstream.store_views.materialiser import Materialiser, default_path
from tests.store_views.view_process import running_view
from tests.stream_processors.assembly.build import proxy_span

FOLLOW = """
import sys, threading
from lightstream.runtime.settings import Settings
from lightstream.store_views.materialiser import Materialiser
Materialiser(Settings.load()).start()
print("following", flush=True)
threading.Event().wait()
"""
AGREEMENT = """
SELECT next_offset, (SELECT count(*) FROM spans_raw WHERE log_partition = partition),
    (SELECT count(DISTINCT log_offset) FROM spans_raw WHERE log_partition = partition)
FROM offsets WHERE topic = 'spans'
"""
WAIT_S = 120.0


class Load(threading.Thread):
    """Publishes spans, about 5,000 a second, until told to stop; one record in 50 is unreadable."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(daemon=True)
        self.ending = threading.Event()
        self.good = 0
        self.bad = 0
        self._publisher = KafkaPublisher(settings)
        self._value = Codec().encode(proxy_span(1, prompt=range(200), response=range(200)))

    def run(self) -> None:
        while not self.ending.is_set():
            for number in range(500):
                value = b"junk" if number % 50 == 0 else self._value
                self._publisher.publish_encoded(SPANS, f"r{number}", value)
                self.bad += value == b"junk"
                self.good += value != b"junk"
            assert self._publisher.flush(WAIT_S) == 0
            self.ending.wait(0.1)

    def finish(self) -> None:
        self.ending.set()
        self.join()
        self._publisher.close()


def check_agreement(path: Path) -> int:
    """Rows of ``spans`` in the file; fails where they are not exactly those below the offsets."""
    with duckdb.connect(str(path), read_only=True) as connection:
        bad = dict(
            connection.execute(
                "SELECT origin_partition, count(*) FROM dead_letters WHERE origin_topic = 'spans' GROUP BY ALL"
            ).fetchall()
        )
        assert bad is not None
        total = 0
        for next_offset, rows, distinct in connection.execute(AGREEMENT).fetchall():
            assert rows == distinct <= next_offset
            total += rows
        return total


@pytest.mark.parametrize("kills", [3, pytest.param(25, marks=pytest.mark.soak)])
def test_killed_at_any_moment_rows_and_offsets_agree(kills: int, settings: Settings) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    load = Load(settings)
    load.start()
    path = default_path(settings)
    seen = 0
    for _ in range(kills):
        child = subprocess.Popen(
            [sys.executable, "-c", FOLLOW],
            env=os.environ | settings.to_environment(),
            stdout=subprocess.PIPE,
            text=True,
        )
        assert child.stdout is not None
        assert child.stdout.readline() == "following\n"
        threading.Event().wait(rng.uniform(0.0, 1.5))  # the drawn moment
        child.send_signal(signal.SIGKILL)
        child.communicate(timeout=60)
        rows = check_agreement(path)
        assert rows >= seen
        seen = rows
    load.finish()
    materialiser = Materialiser(settings)
    materialiser.start()
    for _ in range(2):  # the second time for the dead letters that the view itself wrote meanwhile
        assert materialiser.positions.wait_for(materialiser.end_offsets_now(), WAIT_S) == {}
    cursor = materialiser.database.cursor()
    assert cursor.execute("SELECT count(*), count(DISTINCT (log_partition, log_offset)) FROM spans_raw").fetchall() == [
        (load.good, load.good)
    ]
    assert cursor.execute("SELECT count(*) FROM dead_letters").fetchall() == [(load.bad,)]
    assert cursor.execute("SELECT sum(next_offset) FROM offsets WHERE topic = 'spans'").fetchall() == [
        (load.good + load.bad,)
    ]
    materialiser.stop()


def test_a_view_that_was_killed_shows_no_less_than_before(settings: Settings) -> None:
    publisher, client = KafkaPublisher(settings), ViewClient(settings)
    with running_view(settings) as process:
        landed = [publisher.publish(SPANS, f"r{number}", proxy_span(number)) for number in range(1000)]
        shown = [future.result(WAIT_S) for future in landed]
        assert client.query("SELECT count(*) FROM spans_raw", shown).scalar() == 1000
        process.kill()
    with running_view(settings):
        assert client.query("SELECT count(*) FROM spans_raw").scalar() == 1000, "although no place was named"
    client.close()
    publisher.close()


def test_a_broker_that_is_killed_and_comes_back_is_waited_for(
    private_broker: EmbeddedBroker, private_settings: Settings
) -> None:
    publisher = KafkaPublisher(private_settings)
    client = ViewClient(private_settings)
    with running_view(private_settings):
        written = publisher.publish(SPANS, "r1", proxy_span(1)).result(WAIT_S)
        assert client.query("SELECT count(*) FROM spans", [written]).scalar() == 1
        private_broker.kill()
        assert client.query("SELECT count(*) FROM spans").scalar() == 1, "what is there can be read meanwhile"
        waiting = publisher.publish(SPANS, "r2", proxy_span(2, rollout_id="r2"))
        private_broker.start()
        assert client.query("SELECT count(*) FROM spans", [waiting.result(WAIT_S)], wait_s=60).scalar() == 2
    client.close()
    publisher.close()
