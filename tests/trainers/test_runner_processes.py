"""Runner processes live and die with the trainer."""

from __future__ import annotations

import asyncio
import functools
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lightstream.producers import AttemptedRollout, Hook, OtelTracer, rollout
from lightstream.producers.runner import Outcome
from lightstream.runtime.schema_registry import codec_for
from lightstream.runtime.services import Service
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import TrainingError
from lightstream.schemas.records import WorkerHeartbeat
from lightstream.schemas.topics import WORKERS
from lightstream.store_views.stores import KafkaLightningStore
from lightstream.trainers import Trainer, algo
from lightstream.trainers.ledger.reading import read_topic
from lightstream.trainers.run.runners import RunnerProcesses
from lightstream.up import Stack
from tests.support.waiting import eventually
from tests.trainers.support.holding_agent import held_answer

ROOT = Path(__file__).parents[2]


def is_alive(pid: int) -> bool:
    return Service("", "", pid, 0).is_alive


def workers_seen(settings: Settings) -> int:
    seen = read_topic(settings, WORKERS, codec_for(settings), group_id="test")
    return len({record.worker_id for _, record in seen if isinstance(record, WorkerHeartbeat)})


@pytest.mark.parametrize("signal_number", [signal.SIGKILL, signal.SIGINT])
def test_no_runner_is_left_behind(settings: Settings, signal_number: signal.Signals) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-m", "tests.trainers.support.runner_parent"],
        cwd=ROOT,
        env=os.environ | settings.to_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert parent.stdout is not None
    with parent.stdout:
        pids: list[int] = json.loads(parent.stdout.readline())
        assert len(pids) == 2
        eventually(lambda: workers_seen(settings) == 2, what="both Runners work")
        assert all(map(is_alive, pids))
        parent.send_signal(signal_number)
        parent.wait(300)
        eventually(lambda: not any(map(is_alive, pids)), what="the Runner processes ended")


@pytest.fixture
def nowhere(tmp_path: Path) -> Settings:
    """Settings of a Kafka that is not there: whoever asks it fails in another way."""
    return Settings.load(data_dir=tmp_path, kafka_bootstrap_servers="127.0.0.1:1")


def test_an_agent_that_cannot_travel_is_refused_before_anybody_is_fenced(nowhere: Settings) -> None:
    held = threading.Lock()

    @rollout
    def agent(task: str) -> float:
        with held:
            return 0.0

    trainer = Trainer(
        algorithm=algo(lambda context: pytest.fail("it must not start")), settings=nowhere, trainer_id="trainer"
    )
    with pytest.raises(TrainingError, match="cannot be handed to a Runner process"):
        trainer.fit(agent, ["task"])


def test_without_runners_any_agent_will_do(settings: Settings) -> None:
    with RunnerProcesses(settings, None, n=0, n_concurrent=1, name="test", run_id="") as runners:
        assert runners.pids == []
        runners.check()


@dataclass
class Noting(Hook):
    """Notes the result of each attempt, and its tracer."""

    folder: Path

    async def on_trace_end(self, *, rollout: AttemptedRollout, tracer: OtelTracer, outcome: Outcome, **_: Any) -> None:
        text = f"{outcome.result} {type(tracer).__name__} {getattr(tracer, 'label', None)}"
        (self.folder / f"{rollout.rollout_id}.{os.getpid()}").write_text(text)


class OwnTracer(OtelTracer):
    """A user's own class, with state of its own."""

    def __init__(self, label: str) -> None:
        super().__init__()
        self.label = label


def _given(tracer: OtelTracer) -> OtelTracer:
    return tracer


@pytest.fixture
def own_tracer() -> Iterator[OwnTracer]:
    """An object of this process, which each Runner process gets a copy of."""
    tracer = OwnTracer("mine")
    yield tracer
    tracer.close()


async def test_hooks_and_a_tracer_of_ones_own_work_in_the_runner_processes(
    settings: Settings, tmp_path: Path, capfd: pytest.CaptureFixture[str], own_tracer: OwnTracer
) -> None:
    with (
        Stack(settings, services=["worker"]) as stack,
        RunnerProcesses(
            stack.settings,
            held_answer,
            n=1,
            n_concurrent=1,
            name="test",
            run_id="hooked",
            hooks=[Noting(tmp_path)],
            tracer=functools.partial(_given, own_tracer),
        ) as runners,
    ):
        store = KafkaLightningStore(stack.settings)
        await store.start()
        made = await store.enqueue_rollout("four", run_id="hooked")
        (ended,) = await store.wait_for_rollouts(rollout_ids=[made.rollout_id], timeout=300)
        assert ended.status == "succeeded"
        note = tmp_path / f"{made.rollout_id}.{runners.pids[0]}"
        await asyncio.to_thread(eventually, note.exists, what="the hook was called")
        assert note.read_text() == "4.0 OwnTracer mine"
        await store.close()
    assert capfd.readouterr().err == "", "what the agent holds to the end is no fault"
