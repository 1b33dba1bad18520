"""Two trainers of one run: the second is refused, unless the first is gone."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time

import pytest

from lightstream.runtime.kafka import KafkaPublisher
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import TrainingError
from lightstream.schemas.records import WorkerHeartbeat, WorkerStatus
from lightstream.schemas.topics import WORKERS
from lightstream.trainers.run import lock as run_lock
from lightstream.trainers.run.lock import RunLock, checked_name

HOLD = """
import sys, time
from lightstream.runtime.settings import Settings
from lightstream.trainers.run.lock import RunLock, checked_name
with RunLock(Settings.load(), trainer_id="t", run_id="r"):
    print("held", flush=True)
    time.sleep(600)
"""


def lock(settings: Settings, trainer_id: str = "t", run_id: str = "r", *, take_over: bool = False) -> RunLock:
    return RunLock(settings, trainer_id=trainer_id, run_id=run_id, take_over=take_over)


def test_the_second_is_refused_by_name_of_the_first_and_goes_on_at_once_after_its_death(settings: Settings) -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLD], env=settings.to_environment(), stdout=subprocess.PIPE)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        for second in (lock(settings), lock(settings, "another", "r"), lock(settings, "t", "another")):
            with pytest.raises(TrainingError, match=f"is being trained by process {holder.pid} on host"), second:
                pass
        with lock(settings, "another", "another"):
            pass
    finally:
        holder.kill()
    os.waitid(os.P_PID, holder.pid, os.WEXITED | os.WNOWAIT)  # not reaped yet: a zombie is no trainer
    with lock(settings):
        pass
    holder.wait()


def test_a_policy_of_several_has_one_trainer(settings: Settings) -> None:
    def trains(run_id: str, *policies: str) -> RunLock:
        return RunLock(settings, trainer_id=run_id, run_id=run_id, policies=frozenset(policies))

    with trains("first", "planner", "solver"):
        with pytest.raises(TrainingError, match=r"policy 'solver', of run 'first', is being trained") as told:
            trains("second", "solver", "critic").__enter__()
        assert "name the policy otherwise" in told.value.next_step
        with trains("third", "critic"):
            pass
    with trains("second", "solver"):
        pass


def test_who_has_stopped_leaves_the_run_free(settings: Settings) -> None:
    for _ in range(2):
        with lock(settings), pytest.raises(TrainingError), lock(settings):
            pass


def test_a_claim_that_arrives_after_its_process_was_killed_refuses_nobody(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    late = WorkerHeartbeat(
        worker_id="trainer:t", kind="trainer", host=socket.gethostname(), pid=gone.pid, status=WorkerStatus.BUSY,
        heartbeat_unix_nano=time.time_ns(),
        stats_json=json.dumps({"run_id": "r", "token": "late", "process_started": 1}),
    )  # fmt: skip
    publisher = KafkaPublisher(settings)
    until_free = RunLock._until_free  # pyright: ignore[reportPrivateUsage]  # the moment between looking and claiming

    def then_the_claim_arrives(self: RunLock) -> int:
        seen = until_free(self)
        publisher.publish(WORKERS, late.worker_id, late).result(300)
        return seen

    monkeypatch.setattr(RunLock, "_until_free", then_the_claim_arrives)
    with lock(settings):
        pass
    publisher.close()


def beat_elsewhere(publisher: KafkaPublisher, clock_error_s: float = 0.0) -> None:
    stats = {"run_id": "r", "token": "elsewhere", "started": 0.0}
    now = time.time_ns() + int(clock_error_s * 10**9)
    beat = WorkerHeartbeat(
        worker_id="trainer:t", kind="trainer", host="elsewhere", pid=1, status=WorkerStatus.BUSY,
        heartbeat_unix_nano=now, stats_json=json.dumps(stats),
    )  # fmt: skip
    publisher.publish(WORKERS, beat.worker_id, beat).result(300)


def test_another_machine_is_waited_for_whatever_its_clock_says(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher = KafkaPublisher(settings)
    beat_elsewhere(publisher, -3600.0)
    monkeypatch.setattr("lightstream.trainers.run.lock.time.sleep", lambda _: beat_elsewhere(publisher, -3600.0))
    with pytest.raises(TrainingError, match="on host elsewhere"), lock(settings):
        pass
    with lock(settings, take_over=True):
        pass
    beat_elsewhere(publisher, 3600.0)
    monkeypatch.undo()
    monkeypatch.setattr(run_lock, "STALE_S", 1.0)
    with lock(settings):
        pass
    publisher.close()


@pytest.mark.parametrize("name", ["", "*", "a b", "a/b", "..", "é", "x" * 101, "-a", "a\n"])
def test_names_that_do_not_work_everywhere_are_refused(name: str) -> None:
    with pytest.raises(TrainingError, match="run_id is"):
        checked_name("run_id", name)
    for good in ("trainer", "a.b_c-1", "x" * 100):
        assert checked_name("run_id", good) == good
