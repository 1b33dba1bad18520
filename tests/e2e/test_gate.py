"""``lightstream gate`` with models of known worth: better, worse, another version, and a stable one that is away."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lightstream.producers import rollout
from lightstream.runtime.http.server import HttpServer
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import SettingsError, StoppedError
from lightstream.store_views.client import ViewClient
from lightstream.store_views.stores import KafkaLightningStore
from lightstream.trainers.evaluation import Gate, GatedSet, traffic_tasks
from lightstream.up import Stack
from tests.producers.llm_proxy.upstreams import ScriptedUpstream, completion
from tests.support.program import COMMAND, program
from tests.support.waiting import eventually

TASKS = 12
AGENT = """
import openai
from lightstream.producers import rollout

@rollout
async def agent(task, llm, rollout):
    url = llm.get_base_url(rollout.rollout_id, rollout.attempt.attempt_id)
    client = openai.AsyncOpenAI(base_url=url, api_key="none")
    answer = await client.chat.completions.create(model=llm.model, messages=[{"role": "user", "content": str(task)}])
    return float(answer.choices[0].message.content)
"""
WORTH: dict[str, Callable[[int], float]] = {
    "shop@3": lambda task: 0.5,
    "shop@4": lambda task: 0.9,
    "shop@5": lambda task: 0.1,
    "shop@6": lambda task: 0.9 if task % 2 else 0.4,
}


def answer(request: dict[str, Any]) -> dict[str, Any]:
    task = int(request["messages"][0]["content"])
    made = completion(id=f"chatcmpl-{request['model']}-{task}-{id(request)}", model=request["model"])
    made["choices"][0]["message"]["content"] = str(WORTH[request["model"]](task))
    return made


@pytest.fixture
def upstream() -> ScriptedUpstream:
    upstream = ScriptedUpstream()
    upstream.answer = answer
    return upstream


@pytest.fixture
def stack(settings: Settings, upstream: ScriptedUpstream, request: pytest.FixtureRequest) -> Iterator[Stack]:
    """Its parameter: after how many seconds of silence an attempt is closed."""
    server = HttpServer(upstream.app, settings, name="upstream", port=0, setting="")
    changes = {"llm_upstream_url": f"{server.start()}/v1", "rollout_unresponsive_s": getattr(request, "param", 300.0)}
    with Stack(settings.model_copy(update=changes), services=("worker", "view", "proxy")) as stack:
        yield stack
    server.stop()


@pytest.fixture
def asking(tmp_path: Path) -> list[str]:
    (tmp_path / "agent.py").write_text(AGENT)
    (tmp_path / "tasks.json").write_text(json.dumps(list(range(TASKS))))
    return ["gate", "shop-agent", f"{tmp_path}/agent.py:agent", "--tasks", f"{tmp_path}/tasks.json", "--format", "json"]


def judged(stack: Stack, asking: list[str], stable: str, candidate: str, *more: str) -> tuple[int, dict[str, Any]]:
    done = subprocess.run(
        [*COMMAND, *asking, "--stable", stable, "--candidate", candidate, *more],
        env=os.environ | stack.settings.to_environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def outcomes(report: dict[str, Any]) -> dict[tuple[str, str], bool]:
    return {(check["figure"], check["kind"]): check["passed"] for check in report["checks"]}


def test_better_passes_and_worse_or_uneven_does_not(stack: Stack, asking: list[str]) -> None:
    status, better = judged(stack, asking, "shop@3", "shop@4")
    assert (status, better["outcome"]) == (0, "passed"), better
    assert all(outcomes(better).values())
    (reward,) = [check for check in better["checks"] if check["kind"] == "better"]
    assert (reward["stable_mean"], reward["candidate_mean"]) == pytest.approx((0.5, 0.9))
    assert better["notes"] == ["fixed: cost is not known of every rollout, and is not checked"]

    status, worse = judged(stack, asking, "shop@3", "shop@5")
    assert (status, worse["outcome"]) == (3, "failed")
    assert not outcomes(worse)["reward", "not_worse"]
    status, uneven = judged(stack, asking, "shop@3", "shop@6")
    assert (status, uneven["outcome"]) == (3, "failed"), "better in the mean, and not surely"

    again = judged(stack, asking, "shop@3", "shop@5")
    assert again == (3, worse), "a candidate is judged once"
    view = ViewClient(stack.settings)
    kept = view.query("SELECT candidate, outcome FROM gate_reports ORDER BY candidate", "now").rows
    assert kept == [["shop@4", "passed"], ["shop@5", "failed"], ["shop@6", "failed"]]
    counted = view.query("SELECT count(*) FROM rollouts WHERE run_id LIKE 'gate-shop-agent-fixed-%'", "now").rows
    assert counted == [[3 * 2 * TASKS]]
    assert len(view.query("SELECT * FROM gate_checks WHERE NOT passed", "now").rows) >= 2


def test_a_stable_model_that_is_away_decides_nothing_and_is_asked_again(
    stack: Stack, upstream: ScriptedUpstream, asking: list[str]
) -> None:
    upstream.answer = lambda request: (
        answer(request | {"model": "lost"}) if request["model"] == "shop@3" else answer(request)
    )
    status, lost = judged(stack, asking, "shop@3", "shop@4")
    assert (status, lost["outcome"], lost["checks"]) == (3, "undecided", [])
    assert "100% of the stable model's rollouts failed" in lost["notes"][0]
    upstream.answer = answer
    assert judged(stack, asking, "shop@3", "shop@4")[1]["outcome"] == "passed"


def test_another_version_that_answers_decides_nothing(
    stack: Stack, upstream: ScriptedUpstream, asking: list[str]
) -> None:
    def latest(request: dict[str, Any]) -> dict[str, Any]:
        return answer(request) | {"model": "shop@4"}

    upstream.answer = latest
    status, found = judged(stack, asking, "shop@3", "shop@4")
    assert (status, found["outcome"]) == (3, "undecided")
    assert found["notes"][0] == "fixed: shop@3 was asked for, and version 4 answered"


def test_a_sample_of_the_traffic_is_a_set_of_its_own(stack: Stack, asking: list[str]) -> None:
    async def serve() -> None:
        store = KafkaLightningStore(stack.settings)
        await store.start()
        try:
            for task in range(TASKS):
                for _ in range(2):
                    begun = await store.start_rollout(task, metadata={"ok": "true" if task < 8 else "false"})
                    await store.update_attempt(begun.rollout_id, begun.attempt.attempt_id, status="succeeded")
        finally:
            await store.close()

    asyncio.run(serve())
    status, both = judged(stack, asking, "shop@3", "shop@4", "--traffic", "100")
    assert (status, both["outcome"]) == (0, "passed"), both
    assert [(one["name"], one["tasks"]) for one in both["sets"]] == [("fixed", TASKS), ("traffic", TASKS)]
    without = [argument for argument in asking if argument != "--tasks" and not argument.endswith("tasks.json")]
    status, alone = judged(stack, without, "shop@3", "shop@5", "--traffic", "8")
    assert (status, [one["name"] for one in alone["sets"]]) == (3, ["traffic"])
    _, consenting = judged(stack, without, "shop@3", "shop@4", "--traffic", "100", "--traffic-consent", "ok=true")
    assert [one["tasks"] for one in consenting["sets"]] == [8]
    assert traffic_tasks(stack.settings, consent=("ok", "false"), count=2) != []
    with pytest.raises(SettingsError, match="there is no traffic"):
        traffic_tasks(stack.settings, consent=("ok", "perhaps"))


@pytest.mark.parametrize("stack", [20.0], indirect=True)
def test_a_gate_that_was_killed_goes_on(stack: Stack, upstream: ScriptedUpstream, asking: list[str]) -> None:
    asked: list[str] = []
    goes_on = threading.Event()

    def slowly(request: dict[str, Any]) -> dict[str, Any] | None:
        asked.append(request["model"])
        return answer(request) if len(asked) <= 5 or goes_on.is_set() else None

    upstream.answer = slowly
    names = ["--stable", "shop@3", "--candidate", "shop@4", "--concurrency", "1"]
    with program(stack.settings, *asking, *names) as first:
        eventually(lambda: len(asked) > 5)
        first.process.send_signal(signal.SIGKILL)
        first.process.wait(300)
    goes_on.set()
    upstream.answer = answer
    status, report = judged(stack, asking, "shop@3", "shop@4")
    assert (status, report["outcome"]) == (0, "passed")
    reports = ViewClient(stack.settings).query("SELECT count(*) FROM gate_reports_raw", "now").rows
    assert reports == [[1]]


def test_a_gate_that_is_stopped_runs_no_further_rollouts_and_goes_on_later(stack: Stack) -> None:
    asked: list[int] = []
    stopping, told = threading.Event(), threading.Event()

    def stop() -> bool:
        if stopping.is_set():
            told.set()
        return stopping.is_set()

    @rollout
    def agent(task: int) -> float:
        asked.append(task)
        if len(asked) == 3:
            stopping.set()
            told.wait()
        return 0.5

    gate = Gate(stack.settings, {"fixed": GatedSet(agent, list(range(TASKS)))}, concurrency=1)
    with pytest.raises(StoppedError, match="was stopped"):
        gate("shop-agent", "shop@3", "shop@4", stop=stop)
    assert len(asked) == 3
    assert gate("shop-agent", "shop@3", "shop@4").outcome == "failed", "it shows no gain"
    assert sorted(asked) == sorted([*range(TASKS), *range(TASKS)])
