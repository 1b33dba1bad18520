"""An agent's process that ends without a word right after a model's answer: the call is in the trajectory."""

from __future__ import annotations

import asyncio
import sys
from functools import partial

from lightstream.runtime.services import discover
from lightstream.runtime.settings import Settings
from lightstream.schemas.records import Trajectory
from lightstream.schemas.topics import TRAJECTORIES
from lightstream.schemas.types import EnqueueRolloutRequest, RolloutConfig
from lightstream.store_views.stores import KafkaLightningStore
from lightstream.up import Stack
from tests.faults.producers.model_server import counting_model_server
from tests.faults.producers.vanishing_runner import ANSWERS, NAME
from tests.producers.support import read_records
from tests.support.waiting import eventually

ATTEMPTS = 2

CONFIG = RolloutConfig(max_attempts=ATTEMPTS, retry_condition=["timeout"])
"""Silence is not what ends an attempt here: on a busy machine it might end before its agent has called."""


async def _roll_out(settings: Settings) -> None:
    """Each attempt is given up as soon as its agent is gone."""
    store = KafkaLightningStore(settings)
    await store.start()
    task = {"proxy": discover(settings, "proxy").address}
    (made,) = await store.enqueue_many_rollouts([EnqueueRolloutRequest(input=task, config=CONFIG)])
    for number in range(1, ATTEMPTS + 1):
        await asyncio.to_thread(eventually, partial(_are_gone, settings, number), what=f"agent {number} is gone")
        await store.update_attempt(made.rollout_id, "latest", status="timeout")
    await store.close()


def _are_gone(settings: Settings, count: int) -> bool:
    return len(list((settings.data_dir / ANSWERS).glob("*"))) == count


def _trajectories(settings: Settings) -> list[Trajectory]:
    found = [record for _, record in read_records(settings, TRAJECTORIES) if isinstance(record, Trajectory)]
    return found if len(found) == ATTEMPTS else []


def test_the_call_of_an_agent_that_vanishes_is_in_its_trajectory(settings: Settings) -> None:
    """Of each attempt: the first, which is tried again, and the last, which is final."""
    with counting_model_server(settings) as upstream:
        forwarding = settings.model_copy(update={"llm_upstream_url": upstream})
        program = [sys.executable, "-m", "tests.faults.producers.vanishing_runner"]
        with Stack(forwarding, services=("worker", "view", "proxy"), programs={NAME: program}) as stack:
            asyncio.run(_roll_out(stack.settings))
            trajectories = eventually(lambda: _trajectories(settings), what="both are assembled")
    for trajectory in trajectories:
        answer_id = (settings.data_dir / ANSWERS / trajectory.attempt_id).read_text("utf-8")
        ids = [triplet.response_id for triplet in trajectory.triplets] + [drop.response_id for drop in trajectory.drops]
        assert ids == [answer_id]
    first, last = sorted(trajectories, key=lambda trajectory: trajectory.attempt_sequence)
    assert (first.final, [drop.reason.value for drop in first.drops]) == (False, ["attempt_not_final"])
    assert (last.final, len(last.triplets)) == (True, 1)
