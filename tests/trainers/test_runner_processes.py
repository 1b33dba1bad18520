"""Runner processes live and die with the trainer."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lightstream.schemas.codec import codec_for
from lightstream.schemas.errors import TrainingError
from lightstream.schemas.records import WorkerHeartbeat
from lightstream.schemas.services import Service
from lightstream.schemas.settings import Settings
from lightstream.schemas.topics import WORKERS
from lightstream.trainers import Trainer, algo
from lightstream.trainers.ledger.reading import read_whole_topic
from lightstream.trainers.runners import RunnerProcesses
from tests.support.digits import say_digit
from tests.support.waiting import eventually

ROOT = Path(__file__).parents[2]


def is_alive(pid: int) -> bool:
    return Service("", "", pid, 0).is_alive


def workers_seen(settings: Settings) -> int:
    seen = read_whole_topic(settings, WORKERS, codec_for(settings), group_id="test")
    return len({record.worker_id for record in seen if isinstance(record, WorkerHeartbeat)})


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
        parent.wait(60)
        eventually(lambda: not any(map(is_alive, pids)), what="the Runner processes ended")


@pytest.fixture
def nowhere(tmp_path: Path) -> Settings:
    """Settings of a Kafka that is not there: whoever asks it fails in another way."""
    return Settings.load(data_dir=tmp_path, kafka_bootstrap_servers="127.0.0.1:1")


def test_an_agent_that_cannot_travel_is_refused_before_anybody_is_fenced(nowhere: Settings) -> None:
    trainer = Trainer(algorithm=algo(lambda context: pytest.fail("it must not start")), settings=nowhere)
    with pytest.raises(TrainingError, match="cannot be handed to a Runner process"):
        trainer.fit(lambda task: 0.0, ["task"])


def test_a_runner_that_imports_the_program_does_not_train_too(
    nowhere: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(multiprocessing.current_process(), "_inheriting", True, raising=False)
    trainer = Trainer(algorithm=algo(lambda context: pytest.fail("it must not start")), settings=nowhere)
    with pytest.raises(TrainingError, match="while a Runner process imported this program") as raised:
        trainer.fit(say_digit, ["task"])
    assert 'if __name__ == "__main__":' in raised.value.next_step


def test_without_runners_any_agent_will_do(settings: Settings) -> None:
    with RunnerProcesses(settings, None, n=0, n_concurrent=1, name="test") as runners:
        assert runners.pids == []
        runners.check()
