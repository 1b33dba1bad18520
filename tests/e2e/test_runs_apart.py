"""Two runs at once on one system, and what a dead one left: each run's rewards are its own agents'."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from lightstream.producers import Runner, rollout
from lightstream.runtime.kafka import KafkaPublisher
from lightstream.runtime.settings import Settings
from lightstream.schemas.topics import SPANS
from lightstream.schemas.types import Assembly, EnqueueRolloutRequest
from lightstream.store_views.client import ViewClient
from lightstream.store_views.stores import KafkaLightningStore
from lightstream.trainers import AlgorithmContext, Trainer
from lightstream.up import Stack
from tests.stream_processors.assembly.build import framework_span, proxy_span, reward_span
from tests.support.runs_command import counts_of_run, row_of_run
from tests.support.topics import settings_on
from tests.support.waiting import eventually

ROLLOUTS = 500

HOUR_S = 3600
STEPS, TASKS, SAMPLES = 4, 4, 2
TIMEOUT_S = 1500.0


@rollout
async def always_right(task: int) -> float:
    return 1.0


@rollout
async def always_wrong(task: int) -> float:
    return 0.0


def test_no_rollout_of_a_run_goes_to_the_runners_of_another(kafka_servers: str, tmp_path: Path) -> None:
    settings = settings_on(kafka_servers, tmp_path)

    async def train(settings: Settings) -> None:
        stores = [KafkaLightningStore(settings) for _ in range(2)]
        for store in stores:
            await store.start()
        try:
            await stores[0].enqueue_many_rollouts([EnqueueRolloutRequest(input=n, run_id="dead") for n in range(20)])
            runners = [
                Runner(stores[0], always_right, run_id="right", settings=settings, n_concurrent=16, instrument=False),
                Runner(stores[1], always_wrong, run_id="wrong", settings=settings, n_concurrent=16, instrument=False),
            ]
            mixed = [EnqueueRolloutRequest(input=n, run_id=("right", "wrong")[n % 2]) for n in range(2 * ROLLOUTS)]
            await asyncio.gather(
                stores[0].enqueue_many_rollouts(mixed), *(runner.run(max_rollouts=ROLLOUTS) for runner in runners)
            )
        finally:
            for store in stores:
                await store.close()

    with Stack(settings, services=["worker", "view"]) as stack:
        asyncio.run(train(stack.settings))
        view = ViewClient(stack.settings)
        query = "SELECT run_id, reward, count(*) FROM trajectories WHERE final GROUP BY ALL ORDER BY ALL"
        expected = [["right", 1.0, ROLLOUTS], ["wrong", 0.0, ROLLOUTS]]
        eventually(lambda: [list(row) for row in view.query(query).rows] == expected)
        waiting = "SELECT run_id, count(*) FROM rollouts WHERE status = 'queuing' GROUP BY ALL"
        assert [list(row) for row in view.query(waiting, "now").rows] == [["dead", 20]]
        view.close()


def test_each_run_is_assembled_by_its_own_rules(kafka_servers: str, tmp_path: Path) -> None:
    """A planner's call and a reward, then a coder's and another, in four runs on one worker."""
    rules = {
        "usual": None,
        "credit": Assembly(credit="discounted:0.5", trained_agents=""),
        "match": Assembly(reward_match="log_order", trained_agents=""),
        "agents": Assembly(trained_agents="^coder$"),
    }

    async def roll_out(settings: Settings) -> None:
        store, publisher = KafkaLightningStore(settings), KafkaPublisher(settings)
        await store.start()
        try:
            for run_id, assembly in rules.items():
                asked = await store.start_rollout(1, run_id=run_id, assembly=assembly)
                place = {"rollout_id": asked.rollout_id, "attempt_id": asked.attempt.attempt_id}
                spans = [
                    framework_span(1, {"gen_ai.agent.name": "planner"}),
                    proxy_span(2, parent=1),
                    reward_span(3, 0.25),
                    framework_span(4, {"gen_ai.agent.name": "coder"}),
                    proxy_span(5, parent=4),
                    reward_span(6, 1.0),
                ]
                for span in spans:
                    publisher.publish(SPANS, asked.rollout_id, span.model_copy(update=place))
                assert publisher.flush(300) == 0
                await store.update_attempt(asked.rollout_id, asked.attempt.attempt_id, status="succeeded")
        finally:
            await store.close()
            publisher.close()

    with Stack(settings_on(kafka_servers, tmp_path, trained_agents="^planner$"), services=["worker", "view"]) as stack:
        asyncio.run(roll_out(stack.settings))
        view = ViewClient(stack.settings)
        query = "SELECT run_id, agent_name, reward FROM triplets ORDER BY run_id, call_index"
        expected = [
            ["agents", "coder", 1.0],
            ["credit", "planner", 0.5],
            ["credit", "coder", 1.0],
            ["match", "planner", 0.25],
            ["match", "coder", 1.0],
            ["usual", "planner", 1.0],
        ]
        eventually(lambda: [list(row) for row in view.query(query).rows] == expected)
        named = "SELECT run_id, credit, reward_match, trained_agents FROM rollouts ORDER BY run_id"
        assert [list(row) for row in view.query(named).rows] == [
            ["agents", None, None, "^coder$"],
            ["credit", "discounted:0.5", None, ""],
            ["match", None, "log_order", ""],
            ["usual", None, None, None],
        ]
        view.close()


def test_a_clock_that_is_an_hour_off_loses_and_crosses_nothing(kafka_servers: str, tmp_path: Path) -> None:
    """Two trainers at once; the Runner of one is an hour ahead of them and of the worker, that of the other behind."""
    skews_s, rewards = {"ahead": HOUR_S, "behind": -HOUR_S}, {"ahead": 1.0, "behind": 0.0}
    count = STEPS * TASKS * SAMPLES

    def train(settings: Settings, run_id: str) -> list[float | None]:
        """The reward of each rollout that the trainer got."""
        got: list[float | None] = []

        def algorithm(context: AlgorithmContext) -> None:
            for step in range(1, STEPS + 1):
                started = context.now()
                groups = context.collect(context.enqueue_step(step, tasks=TASKS, rollouts_per_task=SAMPLES))
                got.extend(trajectory.reward for group in groups for trajectory in group.trajectories)
                context.commit(step, groups, started_unix_nano=started)

        Trainer(algorithm=algorithm, n_runners=0, settings=settings, trainer_id=run_id, progress=False).fit(
            None, list(range(10))
        )
        return got

    with Stack(settings_on(kafka_servers, tmp_path), services=["worker", "view"]) as stack:
        settings = stack.settings
        began_unix_nano = time.time_ns()
        runners = [
            subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "tests.e2e.skewed_runner",
                    str(skew_s),
                    run_id,
                    str(rewards[run_id]),
                    str(count),
                ],
                env=os.environ | settings.to_environment(),
            )
            for run_id, skew_s in skews_s.items()
        ]
        try:
            with ThreadPoolExecutor(len(skews_s)) as pool:
                trained = dict(zip(skews_s, pool.map(lambda run_id: train(settings, run_id), skews_s), strict=True))
            assert trained == {run_id: [reward] * count for run_id, reward in rewards.items()}
            assert [runner.wait(TIMEOUT_S) for runner in runners] == [0, 0]
        finally:
            for runner in runners:
                runner.kill()
                runner.wait()
        view = ViewClient(settings)
        query = "SELECT run_id, status, attempt_count, count(*) FROM rollouts GROUP BY ALL ORDER BY ALL"
        expected = [[run_id, "succeeded", 1, count] for run_id in skews_s]
        eventually(lambda: [list(row) for row in view.query(query).rows] == expected)
        off = f"""
            SELECT rollouts.run_id, round((min(start_unix_nano) - {began_unix_nano}) / {HOUR_S}e9),
                count(DISTINCT rollout_id)
            FROM spans JOIN rollouts USING (rollout_id) GROUP BY ALL ORDER BY ALL
        """  # noqa: S608  # numbers
        spans = [["ahead", 1.0, count], ["behind", -1.0, count]]
        eventually(lambda: [list(row) for row in view.query(off).rows] == spans)
        view.close()
        for run_id in skews_s:
            assert counts_of_run(settings, run_id) == [0, 0, count, 0, 0]
            row = row_of_run(settings, run_id)
            assert (row["trainers"], row["step"], row["state"]) == (run_id, STEPS, "finished")
        # Neither was active an hour ago, nor is either still active an hour from now.
        assert age_s(settings, "behind") < HOUR_S / 2
        eventually(lambda: age_s(settings, "ahead") > 0)


def age_s(settings: Settings, run_id: str) -> float:
    """How long ago a rollout of the run last changed, in seconds."""
    return (time.time_ns() - int(row_of_run(settings, run_id)["changed_unix_nano"])) / 1e9
