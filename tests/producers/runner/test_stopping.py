"""A Runner that is told to stop."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from lightstream.producers import OtelTracer, Runner, rollout
from lightstream.runtime.settings import Settings
from lightstream.schemas.records import WorkerStatus
from lightstream.schemas.types import (
    EnqueueRolloutRequest,
)
from tests.producers.runner.running import SpansInLog, rewards
from tests.producers.support import ListStore


def test_stop_lets_running_attempts_finish_and_says_so(settings: Settings, tracer: OtelTracer) -> None:
    store, started, go_on = ListStore(), threading.Event(), threading.Event()

    @rollout
    def agent(task: str) -> None:
        started.set()
        go_on.wait(300)

    asyncio.run(store.enqueue_many_rollouts([EnqueueRolloutRequest(input="x", rollout_id=f"r{i}") for i in range(2)]))
    runner = Runner(store, agent, settings=settings, tracer=tracer, worker_id="w")
    thread = threading.Thread(target=lambda: asyncio.run(runner.run()))
    thread.start()
    assert started.wait(300)
    runner.stop()
    go_on.set()
    thread.join(300)
    assert not thread.is_alive()
    assert store.ended == {"r0": (True, None, None)}
    assert [rollout.rollout_id for rollout in store.waiting] == ["r1"], "a stopping Runner takes no more"
    first, last = store.heartbeats[0][0], store.heartbeats[-1][0]
    assert (first.worker_id, first.kind, first.pid) == ("w", "runner", os.getpid())
    assert last.status is WorkerStatus.STOPPED


def test_attempt_that_does_not_finish_in_the_drain_is_reported_as_failed(
    settings: Settings, tracer: OtelTracer
) -> None:
    store, started = ListStore(), threading.Event()

    @rollout
    async def agent(task: str) -> None:
        started.set()
        await asyncio.Event().wait()

    asyncio.run(store.enqueue_many_rollouts([EnqueueRolloutRequest(input="x", rollout_id="r0")]))
    runner = Runner(store, agent, settings=settings, tracer=tracer, drain_timeout_s=0.05)
    thread = threading.Thread(target=lambda: asyncio.run(runner.run()))
    thread.start()
    assert started.wait(300)
    runner.stop()
    thread.join(300)
    assert store.ended["r0"][:2] == (False, "CancelledError")


PROGRAM = """
import asyncio, sys, threading
from lightstream.producers import Runner, rollout
from lightstream.schemas.types import EnqueueRolloutRequest
from support import ListStore

@rollout
def agent(task):
    print("started", flush=True)
    threading.Event().wait(1 if task == "short" else None)
    return 1.0

store = ListStore()
asyncio.run(store.enqueue_many_rollouts([EnqueueRolloutRequest(input=sys.argv[1], rollout_id="r0")]))
print(Runner(store, agent, drain_timeout_s=float(sys.argv[2])).run_forever(), store.ended["r0"][:2])
"""


@pytest.mark.parametrize(
    ("task", "drain_s", "output"),
    [("short", "30", "1 (True, None)"), ("hangs for ever", "0.1", "1 (False, 'CancelledError')")],
)
def test_sigterm_ends_a_runner_process_in_order(
    settings: Settings, spans_in_log: SpansInLog, task: str, drain_s: str, output: str
) -> None:
    """A thread that never returns does not keep the process alive either."""
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, task, drain_s],
        env=os.environ | settings.to_environment() | {"PYTHONPATH": str(Path(__file__).parents[1])},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=60)
    assert (process.returncode, out.strip()) == (0, output)
    assert rewards(spans_in_log()) == ({"r0": 1.0} if task == "short" else {})
