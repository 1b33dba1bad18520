"""The worker as users run it, and a consumer that watches what it writes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, TopicPartition

from lightstream.runtime.kafka import consumer_config
from lightstream.runtime.services import find
from lightstream.runtime.settings import Settings
from lightstream.schemas.topics import Topic

TIMEOUT_S = 300.0
RUN_WORKER = """
from lightstream.runtime.settings import Settings
from lightstream.stream_processors.worker import run
run(Settings.load())
"""


@contextmanager
def worker_process(settings: Settings) -> Generator[int]:
    """A worker that is ready; yields its process id."""
    process = subprocess.Popen([sys.executable, "-c", RUN_WORKER], env=os.environ | settings.to_environment())
    try:
        deadline = time.monotonic() + TIMEOUT_S
        while find(settings, "worker") is None:
            assert process.poll() is None, "the worker ended"
            assert time.monotonic() < deadline, "the worker does not start"
            time.sleep(0.01)
        yield process.pid
    finally:
        process.terminate()
        process.wait(TIMEOUT_S)


def cpu_s(pid: int) -> float:
    """CPU time of a process since it started, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text("ascii").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def follow(settings: Settings, topic: Topic) -> Iterator[Message]:
    """Each record of ``topic``, as they come."""
    consumer = Consumer(consumer_config(settings, group_id="benchmark"))
    name = topic.full_name(settings.topic_prefix)
    consumer.assign(
        [TopicPartition(name, p, OFFSET_BEGINNING) for p in range(topic.partitions(settings.topic_partitions))]
    )
    while True:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None, f"nothing more in {name} for {TIMEOUT_S:g} s"
        if message.error() is None:
            yield message
