"""From rollouts that nobody enqueued to a version, its lineage, and the versions that saw a user."""

from __future__ import annotations

import asyncio
import json
import math
import time
from contextlib import aclosing, closing
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from lightstream.cli.app import app
from lightstream.runtime.kafka import KafkaPublisher
from lightstream.runtime.settings import Settings
from lightstream.schemas.topics import SPANS
from lightstream.store_views.client import ViewClient
from lightstream.store_views.stores import KafkaLightningStore
from lightstream.trainers import Continuous, Rule, make_tiny_model
from lightstream.trainers.algorithms.continuous import rules
from tests.store_views.test_feedback import Trajectories
from tests.store_views.view_process import running_view
from tests.stream_processors.assembly.build import proxy_span
from tests.stream_processors.worker.harness import WorkerProcess
from tests.trainers.support.traffic import RUN, publish, traffic
from tests.trainers.test_consumer import committed

USERS = {"a": "u1", "b": "u1", "c": "u2", "d": "u3", "e": "u2", "f": "u4"}


async def _serve(settings: Settings) -> None:
    """Users' requests, each a rollout; all but the third user consent."""
    store, publisher = KafkaLightningStore(settings), KafkaPublisher(settings)
    await store.start()
    for number, (name, user) in enumerate(USERS.items()):
        metadata = {"user": user, "consent": "false" if user == "u3" else "true"}
        taken = await store.start_rollout({"q": name}, mode="train", rollout_id=name, metadata=metadata)
        call = proxy_span(
            number + 1,
            (65 + number, 66),
            (67 + number, 68),
            rollout_id=name,
            trace_id=f"{number + 1:032x}",
            response_model=f"{RUN}@0",
            request_json='{"temperature": 1.0}',
        ).model_copy(update={"attempt_id": taken.attempt.attempt_id})
        await asyncio.wrap_future(publisher.publish(SPANS, name, call))
        await store.update_attempt(name, taken.attempt.attempt_id, status="succeeded")
    publisher.close()
    await store.close()


def taught(settings: Settings, rollout: str) -> list[dict[str, Any]]:
    """Steps that made the versions that answered a rollout."""
    asked = ["lineage", "--rollout", rollout, "--format", "json"]
    answer = CliRunner().invoke(app, asked, env=settings.to_environment())
    assert answer.exit_code == 0, answer.output
    return list(json.loads(answer.stdout))


async def _withdraw(settings: Settings, name: str) -> None:
    store = KafkaLightningStore(settings)
    await store.start()
    await store.update_rollout(name, metadata={"user": USERS[name], "consent": "false"})
    await store.close()


async def _learn(continuous: Continuous) -> None:
    async with aclosing(continuous.steps(1)) as steps:
        async for _ in steps:
            pass


def test_traffic_becomes_a_version_whose_lineage_is_known(settings: Settings, tmp_path: Path) -> None:
    settings = settings.model_copy(update={"proxy_url": "http://127.0.0.1:9"})  # nobody calls it here
    made = Trajectories(settings)
    with running_view(settings), WorkerProcess(settings):
        view = ViewClient(settings)
        asyncio.run(_serve(settings))
        made.wait_for(*((name, 0) for name in USERS))
        view.feedback([{"rollout_id": n, "score": float(n != "b"), "name": "thumb", "by": "page"} for n in "abcd"])
        found = made.wait_for(*((name, 1) for name in "abcd"))
        assert found["a", 1].revised_unix_nano >= found["a", 1].closed_unix_nano > 0
        asyncio.run(_withdraw(settings, "f"))
        publish(settings, [traffic("end", time.time() + 5000, reward=None)])
        complaint = Rule("complaints", "SELECT rollout_id, 'complaint' AS reason FROM rollouts WHERE rollout_id = 'c'")
        continuous = Continuous(
            make_tiny_model(tmp_path / "model"),
            run_id=RUN,
            count=6,
            lateness=1000.0,
            clock_ahead=1e6,
            rules=[rules.consent(), complaint, rules.share(1), rules.age(1e6), rules.one_per_input()],
            settings=settings,
            logprob_gap_max=math.inf,  # those of these calls are made up
            device="cpu",
            threads=1,
            progress=False,
        )
        (closed,) = (planned for planned in continuous.dry_run() if planned.is_closed)
        reasons = {"c": "complaint", "d": "no_consent", "e": "no_reward", "f": "no_consent"}
        assert {key[0]: why for key, why in closed.left_out.items()} == reasons
        asyncio.run(_learn(continuous))
        (step,) = committed(settings, 1)
        assert {c.rollout_id: c.triplet_count for c in step.consumed} == {
            "a": 1,
            "b": 1,
            "c": 0,
            "d": 0,
            "e": 0,
            "f": 0,
        }
        assert {c.rollout_id: [*c.not_trained] for c in step.consumed if c.not_trained} == {
            name: [why] for name, why in reasons.items()
        }
        assert step.window is not None
        assert step.window.left_out == {"complaint": 1, "no_consent": 2}

        told = view.query("SELECT rollout_id, reason_code FROM why_not_trained ORDER BY ALL", "now").rows
        assert [row for row in told if row[0] in reasons] == [[name, why] for name, why in reasons.items()]
        seen = view.query(":versions-that-saw", params={"key": "user", "value": "u1"}).dicts()
        assert [(row["run_id"], row["version"], row["rollouts"]) for row in seen] == [(RUN, 1, 2)]
        for user in ("u2", "u3", "u4"):
            assert not view.query(":versions-that-saw", params={"key": "user", "value": user}).rows
        answer = CliRunner().invoke(app, ["lineage", f"{RUN}@1", "--format", "json"], env=settings.to_environment())
        assert answer.exit_code == 0, answer.output
        (row,) = json.loads(answer.stdout)
        assert (row["version"], row["trained"], row["not_trained"], row["reward_names"]) == (1, 2, 4, ["thumb"])
        assert (row["reward_mean"], row["scored_by"], row["gate_outcome"]) == (0.5, ["page"], None)
        later = proxy_span(1, rollout_id="later", response_model=f"{RUN}@1")
        with closing(KafkaPublisher(settings)) as publisher:
            publisher.publish(SPANS, "later", later).result(300)
        view.query("SELECT 1", "now")
        assert taught(settings, "a") == [], "the model that the run began with"
        (row,) = taught(settings, "later")
        assert (row["answered_by"], row["version"], row["reward_names"]) == (f"{RUN}@1", 1, ["thumb"])
        view.close()
