"""Ctrl-C at any moment, during the start too: no process is left behind, and the data folder is good."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from lightstream.runtime.kafka import KafkaPublisher
from lightstream.runtime.processes import child_environment
from lightstream.runtime.settings import Settings
from lightstream.schemas.examples import example_of
from lightstream.schemas.records import SpanRecord
from lightstream.schemas.topics import SPANS
from lightstream.store_views.client import ViewClient
from lightstream.up import Stack
from tests.support.processes import processes_of
from tests.support.waiting import eventually

ROOT = Path(__file__).parents[2]
SEED = int(os.environ.get("LIGHTSTREAM_TEST_SEED", random.SystemRandom().randrange(10**6)))
ROUNDS, SOAK_ROUNDS = 3, 20
RECORDS = 50

UP = ("lightstream.cli", "up")
UP_READY_S = 10.0
"""About when ``up`` is ready on two cores: moments are drawn from before and a little after."""

DEMO = ("examples.tool_router",)
DEMO_TRAINS_S = 40.0

STOP_TIMEOUT_S = 300.0
ENDED = (0, 130, -signal.SIGINT)
"""Stopped in order; before that was prepared; while Python itself was starting."""


def _interrupt(program: tuple[str, ...], settings: Settings, delay_s: float) -> str:
    """Start it, press Ctrl-C after a while, and return what is wrong afterwards."""
    process = subprocess.Popen(
        [sys.executable, "-m", *program],
        cwd=ROOT,
        env=child_environment(settings),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        threading.Event().wait(delay_s)  # the moment is drawn, not waited for
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the whole foreground
        status = process.wait(STOP_TIMEOUT_S)
        eventually(lambda: not processes_of(settings.data_dir), what=f"no process is left, after status {status}")
    finally:
        process.kill()
        process.wait()
    return f"exit status {status}" if status not in ENDED else ""


def _interrupted_again_and_again(data_dir: Path, rounds: int) -> None:
    print(f"seed {SEED} (set LIGHTSTREAM_TEST_SEED to repeat)")
    rng = random.Random(SEED)
    settings = Settings.load(
        data_dir=data_dir, topic_partitions=2, kafka_bootstrap_servers=None, gateway_port=0, gateway_grpc_port=0
    )
    with Stack(settings, services=[]) as stack:
        publisher = KafkaPublisher(stack.settings)
        for number in range(RECORDS):
            publisher.publish(SPANS, str(number), example_of(SpanRecord)).result()
        publisher.close()
    for _ in range(rounds):
        delay_s = rng.uniform(0.0, 1.2 * UP_READY_S)
        wrong = _interrupt(UP, settings, delay_s)
        assert not wrong, f"after {delay_s:.2f} s: {wrong}"
    with Stack(settings, services=["worker", "view"]) as stack:
        view = ViewClient(stack.settings)
        assert view.query("SELECT count(*) FROM spans_raw", at_least="now").scalar() == RECORDS
        view.close()
    eventually(lambda: not processes_of(data_dir), what="no process is left")


def test_a_stack_interrupted_at_random_moments_loses_nothing(tmp_path: Path) -> None:
    _interrupted_again_and_again(tmp_path, ROUNDS)


@pytest.mark.soak
def test_a_stack_interrupted_many_times_loses_nothing(tmp_path: Path) -> None:
    _interrupted_again_and_again(tmp_path, SOAK_ROUNDS)


@pytest.mark.soak
@pytest.mark.parametrize("round_number", range(10))
def test_a_demonstration_interrupted_at_a_random_moment_leaves_no_process(tmp_path: Path, round_number: int) -> None:
    rng = random.Random(f"{SEED}-{round_number}")
    delay_s = rng.uniform(0.0, DEMO_TRAINS_S)
    settings = Settings.load(data_dir=tmp_path / "demo", kafka_bootstrap_servers=None)
    wrong = _interrupt((*DEMO, "--data-dir", str(settings.data_dir)), settings, delay_s)
    assert not wrong, f"seed {SEED}, after {delay_s:.2f} s: {wrong}"
