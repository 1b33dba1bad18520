"""The command line as a person uses it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from lightstream.broker import EmbeddedBroker
from lightstream.cli.status import GroupLag, read_cluster_state
from lightstream.runtime.kafka import consumer_config, producer_config
from lightstream.runtime.processes import child_environment
from lightstream.runtime.settings import Settings
from lightstream.schemas.topics import SPANS
from lightstream.up import Stack
from tests.support.processes import processes_of
from tests.support.waiting import eventually

COMMAND = [sys.executable, "-m", "lightstream.cli"]

STOP_TIMEOUT_S = 300.0
"""Of ``up``: it gives the worker 20 s and the broker 30 s before it kills them, and waits for both."""


def lightstream(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments], env=os.environ | variables, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("LIGHTSTREAM_BROKER_PORT", "ninety", "valid integer"),
        ("LIGHTSTREAM_TOPIC_PARTITIONS", "0", "greater than or equal to 1"),
        ("LIGHTSTREAM_TOPIC_PREFIX", "a/b", "match pattern"),
        ("LIGHTSTREAM_KAFKA_SECURITY_PROTOCOL", "TLS", "'PLAINTEXT', 'SSL'"),
    ],
)
def test_wrong_settings_name_the_variable(variable: str, value: str, said: str) -> None:
    done = lightstream("broker", "status", **{variable: value})
    assert done.returncode == 1
    assert f"{variable} is {value!r}" in done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_without_a_broker_it_says_how_to_start_one(tmp_path: Path) -> None:
    environment = child_environment(Settings.load(data_dir=tmp_path, kafka_bootstrap_servers=None))
    done = subprocess.run([*COMMAND, "topics", "create"], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "lightstream broker start" in done.stderr


def test_status_tells_sizes_and_lag(settings: Settings) -> None:
    name = SPANS.full_name(settings.topic_prefix)
    producer = Producer(producer_config(settings))
    for number in range(10):
        producer.produce(name, str(number).encode(), partition=0)
    assert producer.flush(300) == 0
    group = f"{settings.topic_prefix}group"
    consumer = Consumer(consumer_config(settings, group_id=group))
    consumer.commit(offsets=[TopicPartition(name, 0, 4)], asynchronous=False)
    consumer.close()
    assert GroupLag(group, name, committed=4, lag=6) in read_cluster_state(settings).lags
    done = subprocess.run(
        [*COMMAND, "status", "--format", "json"],
        env=child_environment(settings),
        capture_output=True,
        text=True,
        check=True,
    )
    answer = json.loads(done.stdout)
    assert {"topic": name, "partitions": 2, "records": 10, "stored_bytes": None} in answer["topics"]
    assert {"group": group, "topic": name, "committed": 4, "lag": 6} in answer["lags"]


@pytest.fixture
def up(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    settings = Settings.load(data_dir=tmp_path, kafka_bootstrap_servers=None, gateway_port=0, gateway_grpc_port=0)
    environment = child_environment(settings)
    process = subprocess.Popen(
        [*COMMAND, "up", "--no-view", "--no-proxy"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    yield process
    process.kill()
    process.communicate()


def test_ctrl_c_leaves_nothing_behind(up: subprocess.Popen[str], tmp_path: Path) -> None:
    said = _listen(up)
    eventually(lambda: "Ctrl-C stops everything" in "".join(said) or up.poll() is not None, what="up is ready")
    assert len(processes_of(tmp_path)) >= 3, "".join(said)  # itself, the broker, the worker
    up.send_signal(signal.SIGINT)
    assert up.wait(STOP_TIMEOUT_S) == 0, "".join(said)
    eventually(lambda: not processes_of(tmp_path), what="no process is left")
    eventually(lambda: "Stopped; all records are kept." in "".join(said))


def test_ctrl_c_while_the_broker_starts_leaves_nothing_behind(up: subprocess.Popen[str], tmp_path: Path) -> None:
    said = _listen(up)
    eventually(lambda: any("kafka.Kafka" in line for line in map(_command, processes_of(tmp_path))), what="it starts")
    up.send_signal(signal.SIGINT)
    assert up.wait(STOP_TIMEOUT_S) == 0, "".join(said)
    eventually(lambda: not processes_of(tmp_path), what="no process is left")


def _command(line: str) -> str:
    """The whole command line of a process that ``processes_of`` listed."""
    try:
        return Path(f"/proc/{line.split()[0]}/cmdline").read_text()
    except OSError:
        return ""


def _listen(process: subprocess.Popen[str]) -> list[str]:
    """Collect what the process says, so that its pipe never fills up."""
    said: list[str] = []
    stream = process.stdout
    assert stream is not None
    threading.Thread(target=lambda: said.extend(iter(stream.readline, "")), daemon=True).start()
    return said


def test_a_broker_started_alone_runs_on_and_is_used(tmp_path: Path) -> None:
    settings = Settings.load(data_dir=tmp_path, kafka_bootstrap_servers=None)
    environment = child_environment(settings)

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*COMMAND, *arguments], env=environment, capture_output=True, text=True, check=False, timeout=300
        )

    assert run("broker", "status").returncode == 3
    try:
        started = run("broker", "start")
        assert started.returncode == 0, started.stderr
        broker = EmbeddedBroker(settings)
        pid, address = broker.pid, broker.start()
        assert f"The broker runs at {address} (process {pid})." in run("broker", "status").stdout
        with Stack(settings, services=[]) as stack:
            assert stack.names == []  # it was there before, so it is not the stack's to stop
            assert stack.settings.kafka_bootstrap_servers == address
        assert broker.pid == pid
        assert "All topics exist as declared." in run("topics", "create").stdout
    finally:
        stopped = run("broker", "stop")
    assert "The broker is stopped." in stopped.stdout
    eventually(lambda: not processes_of(tmp_path), what="no process is left")


@pytest.mark.parametrize("arguments", [("settings",), ("settings", "--format", "json"), ("--help",)])
def test_output_that_nobody_reads_any_more_ends_quietly(arguments: tuple[str, ...]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [*COMMAND, *arguments], stdout=writing, stderr=subprocess.PIPE, text=True, check=False, timeout=300
        )
    finally:
        os.close(writing)
    assert done.stderr == ""
    assert done.returncode > 0, "killed by a signal"
