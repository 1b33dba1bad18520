"""Scores by people, through the view's server, on a real broker, worker and view, some of which are killed."""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from lightstream.runtime.kafka import KafkaPublisher
from lightstream.runtime.services import discover
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import StoreError
from lightstream.schemas.records import Trajectory
from lightstream.schemas.topics import SPANS, TRAJECTORIES
from lightstream.store_views.client import ViewClient
from lightstream.store_views.feedback import feedback_of
from lightstream.store_views.stores import KafkaLightningStore
from lightstream.trainers import trajectories
from tests.store_views.view_process import running_view, start_view, wait_until_ready
from tests.stream_processors.assembly.build import proxy_span
from tests.stream_processors.worker.harness import TopicReader, WorkerProcess
from tests.support.waiting import eventually

WAIT_S = 300.0


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"rollout_id": "r", "score": float("nan")}, "finite number"),
        ({"rollout_id": "r", "score": float("inf")}, "finite number"),
        ({"rollout_id": "r", "score": 10**400}, "finite number"),
        ({"rollout_id": "r", "score": 1e39}, "finite number"),
        ({"rollout_id": "r", "score": "good"}, "'good'"),
        ({"rollout_id": "r", "score": "1"}, "'1'"),
        ({"rollout_id": "r"}, "not None"),
        ({"score": 1}, "needs rollout_id, span_id or response_id"),
        ({"trace_id": "a" * 32, "score": 1}, "needs rollout_id, span_id or response_id"),
        ({"rollout_id": 7, "score": 1}, "rollout_id must be text"),
        ({"rollout_id": "r", "stars": 5}, "'stars' is no field"),
        ({"rollout_id": "r", "score": 1, "comment": "x" * 10_001}, "may have 10,000"),
        ({"rollout_id": "r", "score": 1, "comment": "\ud800"}, "surrogate"),
        ({"span_id": "xyz", "score": 1}, "16 hex digits"),
        ({"chosen": "a", "score": 1}, "needs two rollouts"),
        ({"chosen": "a", "rejected": "a"}, "needs two rollouts"),
        ({"chosen": "a", "rejected": "b", "score": 1}, "no score"),
        ({"chosen": "a", "rejected": "b", "rollout_id": "c"}, "no other id"),
        (["r", 1], "is an object"),
    ],
)
def test_what_is_no_score_is_named(value: Any, said: str) -> None:
    with pytest.raises(StoreError) as refused:
        feedback_of(value)
    assert said in str(refused.value)


def test_thumbs_and_pairs_are_scores() -> None:
    (up,), (down,) = (feedback_of({"rollout_id": "r", "score": thumb}) for thumb in ("up", "down"))
    assert (up.score, down.score) == (1.0, 0.0)
    assert up.key != down.key
    chosen, rejected = feedback_of({"chosen": "a", "rejected": "b", "key": "k", "name": "helpful"})
    assert (chosen.rollout_id, chosen.score, chosen.compared_with) == ("a", 1.0, "b")
    assert (rejected.rollout_id, rejected.score, rejected.compared_with) == ("b", 0.0, "a")
    assert {chosen.key, rejected.key, chosen.name, rejected.name} == {"k", "helpful"}


@pytest.fixture
def view(settings: Settings) -> Iterator[ViewClient]:
    with running_view(settings):
        client = ViewClient(settings)
        yield client
        client.close()


async def _ended(settings: Settings, names: Sequence[str]) -> None:
    """Run rollouts of a run ``scored``, each of one call and without a reward, to their end."""
    store = KafkaLightningStore(settings)
    await store.start()
    publisher = KafkaPublisher(settings)

    async def one(number: int, name: str) -> None:
        taken = await store.start_rollout({"q": name}, mode="train", rollout_id=name, run_id="scored")
        call = proxy_span(number + 1, rollout_id=name, trace_id=f"{number + 1:032x}")
        call = call.model_copy(update={"attempt_id": taken.attempt.attempt_id})
        await asyncio.wrap_future(publisher.publish(SPANS, name, call))
        await store.update_attempt(name, taken.attempt.attempt_id, status="succeeded")

    await asyncio.gather(*(one(number, name) for number, name in enumerate(names)))
    publisher.close()
    await store.close()


def ended(settings: Settings, *names: str) -> None:
    with ThreadPoolExecutor(1) as pool:  # Playwright's loop runs in the thread of its tests
        pool.submit(asyncio.run, _ended(settings, names)).result()


class Trajectories:
    """What is in the topic, repeats collapsed by identity."""

    def __init__(self, settings: Settings) -> None:
        self._reader = TopicReader(settings, TRAJECTORIES)

    def by_revision(self) -> dict[tuple[str, int], Trajectory]:
        found: dict[tuple[str, int], Trajectory] = {}
        for record in self._reader.read_to_end():
            assert isinstance(record, Trajectory)
            identity = (record.rollout_id, record.revision)
            assert found.setdefault(identity, record) == record
        return found

    def wait_for(self, *wanted: tuple[str, int]) -> dict[tuple[str, int], Trajectory]:
        eventually(lambda: self.by_revision().keys() >= set(wanted), timeout_s=WAIT_S, what=f"{wanted[:3]} …")
        return self.by_revision()


def test_a_score_revises_its_trajectory_once(settings: Settings, view: ViewClient) -> None:
    made = Trajectories(settings)
    with WorkerProcess(settings):
        ended(settings, "a", "b", "c", "d")
        assert made.wait_for(*((name, 0) for name in "abcd"))["a", 0].reward is None
        score = {
            "rollout_id": "a",
            "score": 0.5,
            "name": "tone",
            "comment": "too long, 『長い』",
            "key": "mine",
            "by": "ada",
        }
        (first,) = view.feedback([score])
        (again,) = view.feedback([score])
        assert (first["effect"], first["repeated"], again["repeated"]) == ("revision", False, True)
        assert again["span_id"] == first["span_id"]
        (other,) = view.feedback([score | {"score": 0.75}])
        assert "belongs to another score" in other["error"]["message"]
        assert made.wait_for(("a", 1))["a", 1].reward == 0.5

        by_call = view.feedback(
            [
                {"span_id": f"{2:016x}", "trace_id": f"{2:032x}", "score": "up"},
                {"response_id": "resp-3", "score": -2.0},
                {"chosen": "d", "rejected": "a", "key": "pair"},
                {"chosen": "d", "rejected": "nobody", "key": "half of a pair"},
                {"rollout_id": "nobody", "score": 1},
                {"span_id": "f" * 16, "score": 1},
                {"rollout_id": "b", "score": float("nan")},
            ]
        )
        found = made.wait_for(("b", 1), ("c", 1), ("d", 1), ("a", 2))
        assert [triplet.reward for triplet in found["b", 1].triplets] == [1.0]
        assert [triplet.reward for triplet in found["c", 1].triplets] == [-2.0]
        assert found["b", 1].rewards[0].call_index == 0
        assert (found["d", 1].reward, found["a", 2].reward) == (1.0, 0.0)
        assert [len(result.get("pair", [])) for result in by_call[:4]] == [0, 0, 2, 0]
        problems = [result["error"]["message"] for result in by_call[3:]]
        assert ["nobody" in problems[0], "nobody" in problems[1], "f" * 16 in problems[2]] == [True] * 3
        assert "finite number" in problems[3]

        # Nothing else came of the refused ones: what is written after them is the next revision.
        for name in "abcd":
            view.feedback([{"rollout_id": name, "score": 1, "key": "last"}])
        last = made.wait_for(("a", 3), *((name, 2) for name in "bcd"))
        assert len(last) == 4 + 3 + 3 * 2
        rows = view.query(
            "SELECT name, value, comment, scored_by, key, compared_with, match FROM scores "
            "WHERE rollout_id = 'a' ORDER BY log_offset",
            "now",
        ).rows
        assert rows == [
            ["tone", 0.5, "too long, 『長い』", "ada", "mine", None, "trajectory"],
            ["feedback", 0.0, "", "", "pair", "d", "trajectory"],
            ["feedback", 1.0, "", "", "last", None, "trajectory"],
        ]
        assert view.query("SELECT scored_span_id FROM scores WHERE match = 'link' ORDER BY ALL").rows == [
            [f"{2:016x}"],
            [f"{3:016x}"],
        ]
        assert view.query(":unscored").rows == []


def test_the_server_says_what_is_wrong(settings: Settings, view: ViewClient) -> None:
    url = discover(settings, "view").address + "/v1/feedback"

    def post(content: str) -> tuple[int, str]:
        answer = httpx.post(url, content=content, headers={"content-type": "application/json"}, timeout=60)
        return answer.status_code, answer.json()["error"]["message"]

    assert post('{"rollout_id": "nobody", "score": 1}') == (404, "there is no rollout 'nobody'.")
    assert post('{"rollout_id": "nobody", "score": NaN}')[0] == 400
    assert post("score: 1")[0] == 400
    assert post("[" * 100_000)[0] == 400
    assert "1,001 scores" in post(json.dumps([{}] * 1001))[1]


def test_two_people_at_once_are_both_kept(settings: Settings, view: ViewClient) -> None:
    made = Trajectories(settings)
    with WorkerProcess(settings):
        ended(settings, "r")
        made.wait_for(("r", 0))
        together = threading.Barrier(8)

        def score(person: int) -> dict[str, Any]:
            with closing(ViewClient(settings)) as client:
                together.wait(WAIT_S)
                # Four people, each of whom clicks twice.
                (result,) = client.feedback([{"rollout_id": "r", "score": person % 4, "key": f"person {person % 4}"}])
                return result

        with ThreadPoolExecutor(8) as pool:
            results = list(pool.map(score, range(8)))
        assert len({result["span_id"] for result in results}) == 4
        assert sorted(result["repeated"] for result in results) == [False] * 4 + [True] * 4
        eventually(
            lambda: any(len(found.rewards) == 4 for found in made.by_revision().values()),
            timeout_s=WAIT_S,
            what="all four scores",
        )
        (latest,) = [found for found in made.by_revision().values() if len(found.rewards) == 4]
        assert sorted(reward.value for reward in latest.rewards) == [0, 1, 2, 3]
        assert not latest.drops


SCORES = 60


def test_scores_under_kills_revise_and_train_once(settings: Settings) -> None:
    """As the page sends them, by API and command, some twice, some unknown; worker and view are killed meanwhile."""
    made, draw = Trajectories(settings), random.Random(46)
    names = [f"r{number}" for number in range(SCORES)]
    scores: list[dict[str, Any]] = [
        {"rollout_id": name, "score": number / 8, "key": f"key of {name}"} for number, name in enumerate(names)
    ]
    file = Path(settings.data_dir) / "scores.jsonl"
    view = start_view(settings)
    client = ViewClient(settings, patience_s=WAIT_S)
    try:
        with WorkerProcess(settings) as worker:
            wait_until_ready(settings, view)
            ended(settings, *names)
            made.wait_for(*((name, 0) for name in names))
            for number, score in enumerate(scores[: SCORES // 2]):
                if number % 2:
                    _as_the_page(settings, score)
                else:
                    client.feedback([score])
                if draw.random() < 0.3:
                    client.feedback([score])
                if number % 10 == 5:
                    worker.kill()
                    worker.start()
            view.kill()
            view.wait(300)
            view = start_view(settings)
            wait_until_ready(settings, view)
            by_file = [*scores[SCORES // 3 :], *scores[-5:], {"rollout_id": "nobody", "score": 1}]
            file.write_text("".join(json.dumps(score) + "\n" for score in by_file), "utf-8")
            for written in (SCORES // 2, 0):
                said = _command(settings, "score", "--file", str(file))
                assert f"{written} scores written" in said.stdout
                assert "there is no rollout 'nobody'" in said.stderr
                assert said.returncode == 1
            worker.kill()
            worker.start()
            made.wait_for(*((name, 1) for name in names))
            client.feedback([score | {"key": "last"} for score in scores])
            found = made.wait_for(*((name, 2) for name in names))
        assert {name: found[name, 1].reward for name in names} == {s["rollout_id"]: s["score"] for s in scores}
        assert {len(found[name, 1].rewards) for name in names} == {1}
        assert len(found) == 3 * SCORES
        assert not any(trajectory.drops for trajectory in found.values())
        trained = asyncio.run(_trained_on_revisions(settings, 3 * SCORES))
        assert sorted(trained) == sorted(found)
    finally:
        client.close()
        view.kill()
        view.wait(300)


def _as_the_page(settings: Settings, score: dict[str, Any]) -> None:
    """Send one score as the page's form does; where the view is busy, again with the same key."""
    url = discover(settings, "view").address + "/v1/feedback"

    def is_taken() -> bool:
        answer = httpx.post(url, json=score, timeout=WAIT_S)
        assert answer.status_code in {200, 503}, answer.text
        return answer.status_code == 200

    eventually(is_taken, timeout_s=WAIT_S, what="a score as the page sends it")


async def _trained_on_revisions(settings: Settings, count: int) -> list[tuple[str, int]]:
    """Consume each revision of the run's trajectories, by a consumer that is left and begun again."""
    consumed: list[tuple[str, int]] = []
    while len(consumed) < count:
        steps = trajectories(
            "scored",
            trainer_id="learns-from-people",
            groups=5,
            group_by=lambda made: (f"{made.rollout_id}/{made.revision}", 1),
            settings=settings,
            progress=False,
        )
        async with aclosing(steps):
            taken = 0
            async for step in steps:
                if taken == 3:
                    break  # commits nothing of this step
                taken += 1
                consumed += [(t.rollout_id, t.revision) for group in step.groups for t in group.trajectories]
                if len(consumed) >= count:
                    break
    return consumed


def _command(settings: Settings, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "lightstream.cli", *arguments],
        env=os.environ | settings.to_environment() | {"COLUMNS": "80"},
        capture_output=True,
        text=True,
        check=False,
        timeout=WAIT_S,
    )
