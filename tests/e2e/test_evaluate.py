"""``lightstream eval`` with models of known worth, whole, interrupted and repeated."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lightstream.runtime.http.server import HttpServer
from lightstream.runtime.settings import Settings
from lightstream.store_views.client import ViewClient
from lightstream.up import Stack
from tests.producers.llm_proxy.upstreams import ScriptedUpstream, completion
from tests.support.program import COMMAND, program
from tests.support.runs_command import lightstream
from tests.support.waiting import eventually

TASKS, SAMPLES = 6, 2
AGENT = """
import lightstream.agl as agl
import openai

@agl.rollout
async def agent(task, llm: agl.LLM, rollout):
    url = llm.get_base_url(rollout.rollout_id, rollout.attempt.attempt_id)
    client = openai.AsyncOpenAI(base_url=url, api_key="none")
    answer = await client.chat.completions.create(model=llm.model, messages=[{"role": "user", "content": str(task)}])
    if task == 5:
        raise ValueError("no such task")
    return float(answer.choices[0].message.content)
"""


ENVIRONMENT = """
import openai
from lightstream.producers import rollout
from lightstream.trainers.environments import Environment, Task, TaskSet

@rollout
async def agent(task, llm, rollout):
    url = llm.get_base_url(rollout.rollout_id, rollout.attempt.attempt_id)
    client = openai.AsyncOpenAI(base_url=url, api_key="none")
    answer = await client.chat.completions.create(model=llm.model, messages=[{"role": "user", "content": str(task)}])
    return answer.choices[0].message.content

def verifier(task, answer):
    return float(answer) * task.metadata["worth"]

tasks = [Task(str(n), n, {"worth": n}, "train" if n < 3 else "validation") for n in range(6)]
environment = Environment(TaskSet("numbers", tasks), agent, verifier)
"""


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """``good`` is right on each of the five tasks but 0, ``bad`` on 4 alone."""
    task = int(request["messages"][0]["content"])
    right = task > 0 if request["model"] == "good" else task == 4
    made = completion(id=f"chatcmpl-{request['model']}-{task}-{id(request)}")
    made["choices"][0]["message"]["content"] = str(float(right))
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
def arguments(tmp_path: Path) -> list[str]:
    (tmp_path / "agent.py").write_text(AGENT)
    (tmp_path / "tasks.json").write_text(json.dumps(list(range(TASKS))))
    files = [f"{tmp_path}/agent.py:agent", "--tasks", f"{tmp_path}/tasks.json"]
    return ["eval", *files, "--model", "bad", "--model", "good", "--samples", str(SAMPLES), "--name", "worth"]


def test_models_of_known_worth(stack: Stack, arguments: list[str]) -> None:
    found = json.loads(lightstream(stack.settings, *arguments, "--json"))
    bad, good = found["models"]
    assert (bad["model"], good["model"]) == ("bad", "good")
    for one, passed in ((bad, 1), (good, 4)):
        assert one["reward"]["mean"] == pytest.approx(passed / TASKS)
        assert {k: passes["mean"] for k, passes in one["passes"].items()} == pytest.approx(
            {"1": passed / TASKS, "2": passed / TASKS}
        )
        assert (one["tasks"], one["samples"], one["failed"]) == (TASKS, TASKS * SAMPLES, SAMPLES)
        assert one["tokens"] == TASKS * SAMPLES * 5
    (pair,) = found["compared"]
    assert (pair["model"], pair["baseline"], pair["tasks"]) == ("good", "bad", TASKS)
    assert pair["difference"]["mean"] == pytest.approx(3 / TASKS)
    assert json.loads(lightstream(stack.settings, *arguments, "--json")) == found, "nothing is run twice"
    view = ViewClient(stack.settings)
    counted = view.query("SELECT count(*), sum(attempt_count)::BIGINT FROM rollouts WHERE run_id = 'worth'", "now").rows
    assert counted == [[2 * TASKS * SAMPLES, 2 * TASKS * SAMPLES]]
    table = lightstream(stack.settings, *arguments)
    assert "good less bad, on 6 tasks: +0.5" in table


def test_an_environment_is_evaluated_on_its_validation_tasks(stack: Stack, tmp_path: Path) -> None:
    (tmp_path / "worths.py").write_text(ENVIRONMENT)
    arguments = ["eval", "--env", f"{tmp_path}/worths.py:environment", "--model", "bad", "--model", "good", "--json"]
    found = json.loads(lightstream(stack.settings, *arguments))
    assert found["run"] == "eval-worths"
    bad, good = (one["reward"]["mean"] for one in found["models"])
    assert (bad, good) == (pytest.approx(4 / 3), pytest.approx((3 + 4 + 5) / 3)), "tasks 3, 4 and 5"
    sql = "SELECT DISTINCT metadata_json->>'$.task.split' FROM rollouts WHERE run_id = 'eval-worths'"
    assert ViewClient(stack.settings).query(sql, "now").rows == [["validation"]]


@pytest.mark.parametrize("stack", [20.0], indirect=True)
def test_an_interrupted_evaluation_goes_on(stack: Stack, upstream: ScriptedUpstream, arguments: list[str]) -> None:
    seen: list[int] = []

    def slowly(request: dict[str, Any]) -> dict[str, Any] | None:
        seen.append(1)
        return answer(request) if len(seen) <= 5 else None  # of the sixth the answer never comes

    upstream.answer = slowly
    with program(stack.settings, *arguments, "--concurrency", "1") as first:
        eventually(lambda: len(seen) > 5)
        first.process.send_signal(signal.SIGKILL)
        first.process.wait(300)
    upstream.answer = answer
    whole = json.loads(lightstream(stack.settings, *arguments, "--json"))
    for one, passed in zip(whole["models"], (1, 4), strict=True):
        assert one["samples"] == TASKS * SAMPLES
        assert one["reward"]["mean"] == pytest.approx(passed / TASKS), "as if nothing had happened"


def test_a_bound_is_in_the_exit_status(stack: Stack, arguments: list[str]) -> None:
    environment = os.environ | stack.settings.to_environment()

    def status(*bounds: str) -> int:
        command = [*COMMAND, *arguments, *bounds]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=600)
        assert "bad" in done.stdout, done.stderr
        return done.returncode

    assert status("--at-least", "0.5") == 3
    assert status("--at-most-worse", "0") == 0, "good is better than bad, which comes first"
    arguments[arguments.index("bad")] = "good"
    arguments[len(arguments) - 1 - arguments[::-1].index("good")] = "bad"
    assert status("--at-most-worse", "0.1") == 3
    assert status("--at-most-worse", "1") == 0
    assert status("--at-most-worse", "1", "--at-least", "0.5") == 3


def test_the_program_of_the_page_compares_two_prompts(stack: Stack, upstream: ScriptedUpstream, tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "evaluation.md").read_text("utf-8")
    (program_of_page,) = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    (tmp_path / "prompts.py").write_text(program_of_page, "utf-8")
    (tmp_path / "tasks.jsonl").write_text('"6 * 7"\n"40 + 2"\n', "utf-8")
    environment = os.environ | stack.settings.to_environment()
    of_right_prompt: list[str] = []

    def by_prompt(request: dict[str, Any]) -> dict[str, Any]:
        made = completion(id=f"chatcmpl-{id(request)}")
        prompt = request["messages"][0]["content"]
        made["choices"][0]["message"]["content"] = "42" if prompt.startswith(of_right_prompt[-1]) else "I do not know"
        return made

    upstream.answer = by_prompt
    for name, right, status in (("release-1", "Think", 0), ("release-2", "Answer", 3)):
        of_right_prompt.append(right)
        command = [sys.executable, "prompts.py", name, "my-model"]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=600
        )
        assert done.returncode == status, done.stderr
        assert f"mean={1.0 if status == 0 else -1.0}" in done.stdout
