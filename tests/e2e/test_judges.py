"""A training that waits for a judge's scores; the judge is killed, its server fails, and it speaks prose."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import Response

from lightstream.runtime.http.server import HttpServer
from lightstream.runtime.settings import Settings
from lightstream.store_views.client import ViewClient
from lightstream.trainers import make_tiny_model
from lightstream.up import Stack
from tests.producers.llm_proxy.upstreams import ScriptedUpstream, completion
from tests.support.forked import Forked
from tests.support.program import Program, program
from tests.support.runs_command import lightstream
from tests.support.waiting import eventually

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 1500.0
STEPS, GROUPS, MEMBERS = 2, 2, 4
ROLLOUTS = STEPS * GROUPS * MEMBERS

TRAINING = f"""
import sys
from openai import AsyncOpenAI
from lightstream.producers import rollout
from lightstream.trainers import VERL, Trainer

@rollout
async def silent(task, llm):
    async with AsyncOpenAI(base_url=llm.endpoint, api_key="none") as client:
        await client.chat.completions.create(
            model=llm.model, messages=[{{"role": "user", "content": task}}], **llm.sampling_parameters
        )

algorithm = VERL(model=sys.argv[1], steps={STEPS}, tasks_per_step={GROUPS}, rollouts_per_task={MEMBERS}, threads=1,
                 sampling_parameters={{"max_tokens": 4}}, awaited_rewards=["judge"])
Trainer(algorithm=algorithm, trainer_id="judged", progress=False, n_runners=1).fit(silent, ["one", "two"])
"""


def score_of(conversation: list[dict[str, Any]]) -> float:
    """The oracle: the share of even characters in the answer."""
    said = conversation[-1]["content"] or ""
    return sum(ord(character) % 2 == 0 for character in said) / max(1, len(said))


class Judge:
    """Scores as the oracle does, at its third word; bills each idempotency key once."""

    def __init__(self) -> None:
        self.server = ScriptedUpstream()
        self.server.answer = self._answer
        self.billed: Counter[str] = Counter()
        self._tries: Counter[str] = Counter()
        self._lock = threading.Lock()

    def _answer(self, request: dict[str, Any]) -> Any:
        key, shown = self.server.headers[-1]["idempotency-key"], request["messages"][1]["content"]
        with self._lock:
            self._tries[key] += 1
            if self._tries[key] == 1 and len(self._tries) % 3 == 0:
                return Response("overloaded", 503)
            self.billed[key] = 1
        works = [json.loads(line) for line in shown.split("\n")[1:-1]]
        if "scores" in request["messages"][0]["content"]:
            scores = {name: score_of(work["conversation"]) for one in works for name, work in one.items()}
            return said(json.dumps({"reason": "compared", "scores": scores}))
        if len(self._tries) % 4 == 0 and "seed" not in request:
            return said("I would rather not say.")
        return said(f"Well: {json.dumps({'reason': 'even ones', 'score': score_of(works[0]['conversation'])})}")


def said(text: str) -> dict[str, Any]:
    answer = completion(usage={"total_tokens": 10})
    answer["choices"][0]["message"]["content"] = text
    return answer


@pytest.fixture
def judge(tmp_path: Path) -> Iterator[tuple[Judge, str]]:
    found = Judge()
    running = HttpServer(found.server.app, Settings.load(data_dir=tmp_path / "judge"), name="judge", port=0, setting="")
    yield found, f"{running.start()}/v1"
    running.stop()


def test_a_training_waits_for_its_judge(settings: Settings, judge: tuple[Judge, str], tmp_path: Path) -> None:
    oracle, url = judge
    make_tiny_model(tmp_path / "model", seed=0)
    with Stack(settings, services=("worker", "view", "policy", "proxy")) as stack:
        view = ViewClient(stack.settings, patience_s=120.0)
        environment = os.environ | stack.settings.to_environment()
        command = ["judge", "--model", "m", "--base-url", url, "--run", "judged"]
        with Forked(["-c", TRAINING, str(tmp_path / "model")], environment, ROOT) as training:
            ended = "SELECT count(*) FROM trajectories WHERE run_id = 'judged' AND final"
            eventually(
                lambda: training.poll() is not None or view.query(ended, "now").scalar() >= GROUPS * MEMBERS,
                timeout_s=TIMEOUT_S,
            )
            assert view.query("SELECT count(*) FROM training_steps", "now").scalar() == 0, "it waits"
            for known in (1, MEMBERS, GROUPS * MEMBERS + 1):
                judging = Program(stack.settings, *command)
                eventually(partial(is_over_or_has, training, view, known), timeout_s=TIMEOUT_S)
                judging.end(signal.SIGKILL)
            with program(stack.settings, *command) as last:
                _, output = training.communicate(TIMEOUT_S)
                assert training.returncode == 0, output
                assert last.end(signal.SIGTERM) == 0, last.errors
        rewards = view.query(
            "SELECT t.rollout_id, r.value, t.reward, c.response_json FROM trajectories AS t JOIN rewards AS r "
            "ON r.rollout_id = t.rollout_id AND r.name = 'judge' JOIN llm_calls AS c ON c.rollout_id = t.rollout_id "
            "WHERE t.run_id = 'judged' AND t.final",
            "now",
        ).rows
        assert len({row[0] for row in rewards}) == len(rewards) == ROLLOUTS, "each once"
        for _, value, reward, answer in rewards:
            assert value == reward == pytest.approx(score_of([json.loads(answer)]), abs=1e-6)
        steps = view.query("SELECT step, trajectory_count FROM training_steps ORDER BY step").rows
        assert steps == [[step, GROUPS * MEMBERS] for step in range(1, STEPS + 1)]
        assert len({row[3] for row in rewards}) <= len(oracle.billed) <= 2 * ROLLOUTS
        assert set(oracle.billed.values()) == {1}

        compared = ["judge", "--model", "m", "--base-url", url, "--run", "judged", "--name", "best", "--relative"]
        lightstream(stack.settings, *compared, "--once")
        asked = len(oracle.server.asked)
        assert "0 rollouts judged with 0 questions" in lightstream(stack.settings, *compared, "--once")
        assert len(oracle.server.asked) == asked
        best = "SELECT rollout_id, value FROM scores WHERE name = 'best'"
        first = "SELECT rollout_id, value FROM scores WHERE name = 'judge'"
        scores = dict(view.query(first, "now").rows)
        assert dict(view.query(best).rows) == pytest.approx(scores, abs=1e-6)
        view.close()


def is_over_or_has(training: Forked, view: ViewClient, scores: int) -> bool:
    """Whether the log has this many of the judge's scores, or nothing more will come."""
    found: int = view.query("SELECT count(*) FROM scores WHERE name = 'judge'", "now").scalar()
    return found >= scores or training.poll() is not None
