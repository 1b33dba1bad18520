"""Rollouts through a store whose processes are killed at random moments: each ends once, by the table, and for good."""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from lightstream.runtime.settings import Settings
from lightstream.schemas.records import AttemptStatus, RolloutState
from lightstream.schemas.topics import DEAD_LETTERS, ROLLOUT_EVENTS, ROLLOUTS, SPANS, TRAJECTORIES
from lightstream.schemas.types import EnqueueRolloutRequest, PromptTemplate, RolloutConfig
from lightstream.store_views.client import ViewClient
from lightstream.store_views.stores import KafkaLightningStore
from lightstream.stream_processors.core.lifecycle import Limits
from tests.support.log_tail import Logged, LogTail
from tests.support.waiting import eventually

from .chaos.history import (
    assert_attempts_open_and_close_once,
    assert_legal_lives,
    assert_one_final_trajectory_each,
    unanswered,
)
from .chaos.runner import attempts_begun, task
from .chaos.scene import Kill, Scene, drawn_kills, scene

SEED = int(os.environ.get("LIGHTSTREAM_TEST_SEED", random.SystemRandom().randrange(10**6)))

RETRIED = RolloutConfig(
    max_attempts=30,
    retry_condition=["failed", "timeout", "unresponsive"],
    timeout_seconds=60.0,
    unresponsive_seconds=4.0,
)
"""So many attempts that no rollout fails by the kills alone."""

DOOMED = RETRIED.model_copy(update={"max_attempts": 2})
DOOMED_SHARE = 0.05
FAILURE_CHANCE = 0.15
BATCH = 50
WAIT_S = 240.0
OVER = {AttemptStatus.SUCCEEDED, AttemptStatus.FAILED, AttemptStatus.TIMEOUT, AttemptStatus.UNRESPONSIVE}


def requests_of(chance: random.Random, count: int, work_s_max: float) -> list[EnqueueRolloutRequest]:
    made: list[EnqueueRolloutRequest] = []
    for number in range(count):
        doomed = chance.random() < DOOMED_SHARE
        work = task(chance.uniform(0.0, work_s_max), 1.0 if doomed else FAILURE_CHANCE)
        rollout_id = f"{'doomed' if doomed else 'good'}-{number}"
        made.append(EnqueueRolloutRequest(input=work, rollout_id=rollout_id, config=DOOMED if doomed else RETRIED))
    return made


async def run_all(stage: Scene, requests: list[EnqueueRolloutRequest], kills: list[Kill]) -> None:
    """Enqueue half, kill, enqueue the rest meanwhile, and wait for all. No call may raise."""
    store = KafkaLightningStore(stage.settings)
    await store.start()
    await store.add_resources({"prompt": PromptTemplate(template="{task}")})
    half = len(requests) // 2
    killing: asyncio.Task[None] | None = None
    for begin in range(0, len(requests), BATCH):
        if begin >= half and killing is None:
            killing = asyncio.create_task(asyncio.to_thread(stage.kill_in_turn, kills))
        await store.enqueue_many_rollouts(requests[begin : begin + BATCH])
    assert killing is not None
    ids = [request.rollout_id for request in requests if request.rollout_id is not None]
    waiting = asyncio.create_task(store.wait_for_rollouts(rollout_ids=ids, timeout=WAIT_S + len(ids)))
    await killing
    ended = await waiting
    assert [rollout.rollout_id for rollout in ended] == ids
    await store.close()


def chaos(data_dir: Path, *, runners: int, rollouts: int, work_s_max: float, counts: dict[str, int]) -> None:
    print(f"seed {SEED} (set LIGHTSTREAM_TEST_SEED to repeat)")
    chance = random.Random(SEED)
    requests = requests_of(chance, rollouts, work_s_max)
    kills = drawn_kills(chance, runners=runners, rollouts=rollouts, counts=counts)
    with scene(data_dir, runners) as stage:
        asyncio.run(run_all(stage, requests, kills))
        lives = assert_all_is_well(stage.settings)
    assert lives.keys() == {request.rollout_id for request in requests}
    for rollout_id, state in lives.items():
        expected = "failed" if rollout_id.startswith("doomed") else "succeeded"
        assert state.status == expected, f"{rollout_id} is {state.status}: {state.attempts}"


def assert_all_is_well(settings: Settings) -> dict[str, RolloutState]:
    """What the log, and the view, say in the end."""
    logs = {topic: LogTail(settings, topic) for topic in (ROLLOUT_EVENTS, ROLLOUTS, SPANS, TRAJECTORIES, DEAD_LETTERS)}

    def all_answered() -> bool:
        """Runners write on: the states first, so that the event of each is read too."""
        states = logs[ROLLOUTS].read_to_end()
        return not unanswered(logs[ROLLOUT_EVENTS].read_to_end(), states)

    eventually(all_answered, what="a verdict on each event")
    lives = assert_legal_lives(logs[ROLLOUT_EVENTS].read, logs[ROLLOUTS].read, Limits.of(settings))
    for state in lives.values():
        assert state.status.is_terminal, state
        assert {attempt.status for attempt in state.attempts} <= OVER, state
    assert_attempts_open_and_close_once(logs[SPANS].read_to_end(), lives)
    attempts = sum(len(state.attempts) for state in lives.values())
    eventually(lambda: len({_attempt_of(each) for each in logs[TRAJECTORIES].read_to_end()}) >= attempts)
    assert_one_final_trajectory_each(logs[TRAJECTORIES].read, lives)
    assert logs[DEAD_LETTERS].read_to_end() == []
    begun = Counter(attempts_begun(settings))
    assert set(begun.values()) == {1}, f"run twice: {begun.most_common(3)}"
    with closing(ViewClient(settings, patience_s=300.0)) as view:
        shown = dict(view.query("SELECT status, count(*) FROM rollouts GROUP BY status", at_least="now").rows)
    assert shown == Counter(state.status.value for state in lives.values())
    return lives


def _attempt_of(logged: Logged) -> str:
    return str(getattr(logged.record, "attempt_id", ""))


def test_every_rollout_ends_once_whoever_is_killed(tmp_path: Path) -> None:
    counts = {"runner": 3, "worker": 2, "view": 1, "broker": 1}
    chaos(tmp_path, runners=4, rollouts=120, work_s_max=0.5, counts=counts)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_every_of_many_rollouts_ends_once_whoever_is_killed(tmp_path: Path) -> None:
    """The work lasts longer than the kills, most of which wait until their victim is back from the last one."""
    counts = {"runner": 30, "worker": 10, "view": 4, "broker": 1}
    chaos(tmp_path, runners=16, rollouts=2000, work_s_max=4.0, counts=counts)
