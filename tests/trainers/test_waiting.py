"""What a trainer says while it waits, with a real view and without one."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress
from itertools import pairwise
from typing import Any

import pytest

from lightstream.runtime.kafka import KafkaPublisher
from lightstream.runtime.settings import Settings
from lightstream.schemas.records import AttemptState, AttemptStatus, RolloutStatus
from lightstream.schemas.topics import ROLLOUTS
from lightstream.trainers import trajectories
from lightstream.trainers.rollouts.groups import waiting
from lightstream.trainers.rollouts.groups.waiting import Patience, RunsRollouts, groups_line, rollouts_line
from tests.store_views.test_accounting import state
from tests.store_views.view_process import running_view
from tests.support.waiting import eventually


def test_silence_is_broken_after_half_a_minute_then_more_and_more_seldom() -> None:
    patience = Patience(1000.0)
    said = [seconds for seconds in range(4 * 3600) if patience.is_over(1000.0 + seconds)]
    assert said[:4] == [31, 92, 213, 454]
    assert max(after - before for before, after in pairwise(said)) == 3601
    patience.heard(20_000.0)
    assert patience.is_over(20_030.0) == 0
    assert patience.is_over(20_031.0) == 31
    assert patience.is_over(20_032.0) == 0


def test_groups_are_named_with_what_is_here() -> None:
    assert groups_line({"a": 1}) == "1 group is not complete: a (1 here)"
    assert groups_line(dict.fromkeys("abcd", 0)).endswith("a (0 here), b (0 here), c (0 here), …")


def test_rollouts_are_named_with_their_runner_and_last_sign_of_life() -> None:
    row: dict[str, Any] = {"rollout_id": "r1", "status": "running", "worker_id": "runner-1", "quiet_seconds": 12.4}
    waits = row | {"rollout_id": "r2", "status": "queuing", "worker_id": None}
    line = rollouts_line([row, waits])
    assert "r1 (running, Runner runner-1, last sign of life 12 s ago)" in line
    assert "r2 (queuing, no Runner has taken it, " in line
    assert "have ended" in rollouts_line([])


async def test_a_waiting_consumer_says_what_the_open_rollouts_do(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(waiting, "PATIENCE_S", 0.0)
    attempt = AttemptState(
        attempt_id="mine-1-a1", sequence=1, status=AttemptStatus.RUNNING, worker_id="runner-7", started_unix_nano=1
    )
    running = state("mine-1", RolloutStatus.RUNNING, run_id="mine").model_copy(update={"attempts": [attempt]})
    publisher = KafkaPublisher(settings, linger_ms=1)
    publisher.publish(ROLLOUTS, "mine-1", running)
    assert publisher.flush(300) == 0
    with running_view(settings):
        eventually(lambda: "mine-1 (running, Runner runner-7" in RunsRollouts(settings, "mine")())
        async with aclosing(trajectories("mine", trainer_id="consumer", settings=settings)) as steps:
            waits = asyncio.create_task(anext(steps))
            said = await asyncio.to_thread(eventually, lambda: capsys.readouterr().out)
            waits.cancel()
            with suppress(asyncio.CancelledError):
                await waits
    assert said.startswith("Waiting; nothing has come for ")
    assert "no trajectory of run 'mine' has come. Quietest rollouts: mine-1 (running, Runner runner-7, last" in said


def test_without_a_view_it_says_that_and_what_to_ask_later(settings: Settings) -> None:
    line = RunsRollouts(settings, "mine")()
    assert "is not known" in line
    assert line.endswith("lightstream sql :stuck --run mine --seconds 0")
