"""Rules of a learner against a real view: windows of any size, and a lane of their own."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Sequence
from pathlib import Path

import httpx

from lightstream.runtime.services import discover
from lightstream.runtime.settings import Settings
from lightstream.schemas.records import Trajectory
from lightstream.store_views.client import ViewClient
from lightstream.trainers import Continuous
from lightstream.trainers.algorithms.continuous import rules
from lightstream.trainers.algorithms.continuous.rules import Rule, left_out_by
from lightstream.trainers.rollouts.traffic import Window
from tests.store_views.server.test_running_statements import SLOW
from tests.store_views.test_materialiser import WAIT_S
from tests.store_views.view_process import running_view
from tests.support.waiting import eventually

from .support.traffic import RUN, publish, traffic


def window_of(inputs: Sequence[object], rewards: Sequence[float]) -> Window:
    made = traffic("r", 1, reward=None)
    members: list[Trajectory] = [
        made.model_copy(
            update={
                "rollout_id": f"r{number}",
                "input_json": json.dumps(given),
                "reward": reward,
                "closed_unix_nano": number,
            }
        )
        for number, (given, reward) in enumerate(zip(inputs, rewards, strict=True))
    ]
    return Window(1, 0, 10**9, 10**9, tuple(members))


def test_a_window_of_any_size_is_ruled(settings: Settings) -> None:
    half = 6_000
    many = window_of([f"task {n % half}" for n in range(2 * half)], [float(n % 2) for n in range(2 * half)])
    text = '"' * 1_000_000  # each character is two in JSON, and four in JSON within JSON
    large = window_of([[n % 4, text[: (n % 4) * 50_000]] for n in range(8)], [1.0] * 8)
    huge = window_of([[text * 3], [text * 3]], [1.0, 0.0])
    twice = Rule("twice", "SELECT rollout_id FROM window_rollouts, range(20)", takes=True)
    with running_view(settings):
        view = ViewClient(settings, lane=rules.LANE)
        again = left_out_by(view, [twice, rules.one_per_input()], many)
        assert again == {f"r{n}": "repeated_input" for n in range(half, 2 * half)}
        assert len(left_out_by(view, [rules.quality(0.5)], many)) == half
        assert left_out_by(view, [rules.one_per_input()], large) == {f"r{n}": "repeated_input" for n in range(4, 8)}
        assert left_out_by(view, [rules.quality(0.5)], huge) == {"r1": "below_quality"}
        view.close()


def test_statements_of_people_hold_no_rule_up(settings: Settings, tmp_path: Path) -> None:
    publish(settings, [traffic(f"r{number}", 50 * number, reward=number / 4) for number in range(4)])
    continuous = Continuous(
        tmp_path / "model",  # a dry run loads none
        run_id=RUN,
        count=2,
        rules=[rules.quality(0.25)],
        settings=settings,
        logprob_gap_max=math.inf,
        progress=False,
    )
    with running_view(settings), httpx.Client(base_url=discover(settings, "view").address, timeout=WAIT_S) as http:
        bodies = [{"sql": SLOW, "query_id": f"q{number}", "timeout_s": 600} for number in range(4)]

        def ask(body: dict[str, object]) -> None:
            http.post("/v1/sql", json=body, timeout=WAIT_S)

        asking = [threading.Thread(target=ask, args=[body]) for body in bodies]
        for thread in asking:
            thread.start()

        def all_run() -> bool:
            found: list[dict[str, str]] = http.get("/v1/queries").json()["queries"]
            return sum(query["state"] == "running" for query in found) == 4

        eventually(all_run, what="four statements in the lane of people")
        first = next(iter(continuous.dry_run()))
        assert {key[0]: why for key, why in first.left_out.items()} == {"r0": "below_quality"}
        for body in bodies:
            http.delete(f"/v1/queries/{body['query_id']}")
        for thread in asking:
            thread.join()
