"""What a new user meets in the first hour: each mistake is one message that says what to do, and nothing is lost."""

from __future__ import annotations

import os
import signal
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lightstream.runtime.settings import Settings
from lightstream.store_views.client import ViewClient
from lightstream.trainers import make_tiny_model
from lightstream.up import Stack
from tests.support.forked import Forked
from tests.support.topics import settings_on
from tests.support.waiting import eventually

TIMEOUT_S = 1500.0

PROGRAM = """
import openai
from lightstream.producers import rollout
from lightstream.trainers import VERL, Trainer

@rollout
async def agent(task, llm, rollout):
    client = openai.AsyncOpenAI(base_url=llm.get_base_url(rollout.rollout_id, rollout.attempt.attempt_id), api_key="x")
    answer = await client.chat.completions.create(
        model=llm.model, messages=[{{"role": "user", "content": task}}], **llm.sampling_parameters
    )
    said = answer.choices[0].message.content or ""
    {work}

Trainer(
    algorithm=VERL(
        model={model!r}, steps={steps}, tasks_per_step=2, rollouts_per_task=4, threads=1,
        sampling_parameters={{"max_tokens": 1}},
    ),
    trainer_id={name!r},
).fit(agent, {tasks})
"""

GOOD = "return float(ord(said[0]) % 2 if said else 0.5)"
TASKS = '["say a", "say b", "say c"]'


class Up:
    """A running system, and programs as a user starts them."""

    def __init__(self, settings: Settings, model: Path) -> None:
        self.settings = settings
        self.model = model

    def start(
        self, name: str | None, work: str = GOOD, *, stdin: bool = False, program: str = PROGRAM, **changes: Any
    ) -> Forked:
        """A program of that trainer id: a file, or text on standard input."""
        fields: dict[str, object] = {"model": str(self.model), "steps": 2, "tasks": TASKS, "name": name, "work": work}
        path = self.settings.data_dir / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(program).format(**(fields | changes)))
        with path.open() as text:
            environment = os.environ | self.settings.to_environment()
            return Forked([] if stdin else [str(path)], environment, Path.cwd(), text if stdin else None)

    def run(self, name: str | None, work: str = GOOD, **changes: Any) -> tuple[int, str, str]:
        """Exit status, standard output, standard error."""
        process = self.start(name, work, **changes)
        out, err = process.communicate(TIMEOUT_S)
        return process.wait(), out, err

    def balance(self, run_id: str) -> dict[str, int]:
        """Reason -> rollouts of a run, once every finished one is shown; ``trained`` for those that trained."""
        view = ViewClient(self.settings)
        try:
            finished = (
                "SELECT count(*) FROM rollouts WHERE run_id = ? AND status IN ('succeeded', 'failed', 'cancelled')"
            )
            told = f"""
                SELECT reason_code AS reason, count(DISTINCT rollout_id) FROM why_not_trained
                WHERE rollout_id LIKE '{run_id}-%' GROUP BY ALL
                UNION ALL
                SELECT 'trained', count(DISTINCT rollout_id) FROM trained WHERE rollout_id LIKE '{run_id}-%'
            """  # noqa: S608  # a name of our own

            def settled() -> dict[str, int]:
                reasons = {str(row[0]): int(row[1]) for row in view.query(told).rows if row[1]}
                count = view.query(finished.replace("?", f"'{run_id}'")).scalar()
                pending = reasons.get("not_consumed", 0)
                return reasons if count and sum(reasons.values()) == count and not pending else {}

            return eventually(settled, what=f"the reasons of {run_id} add up")
        finally:
            view.close()


def one_message(err: str) -> str:
    """Standard error, which must be a single message."""
    assert "Traceback" not in err
    assert len(err.strip().splitlines()) == 1, err
    return err


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("tiny") / "model")


@pytest.fixture(scope="module")
def up(kafka_servers: str, tmp_path_factory: pytest.TempPathFactory, model: Path) -> Iterator[Up]:
    settings = settings_on(kafka_servers, tmp_path_factory.mktemp("up"))
    with Stack(settings, services=("worker", "view", "policy", "proxy")) as stack:
        yield Up(stack.settings, model)


STEPS_OF_ITS_OWN = """
import time
from lightstream.producers import rollout
from lightstream.trainers import Trainer, algo

@rollout
def agent(task: int) -> float:
    {work}

@algo
def steps(context):
    for step in range(context.last_step + 1, 6):
        started = context.now()
        groups = context.collect(context.enqueue_step(step, tasks=25, rollouts_per_task=4))
        context.commit(step, groups, started_unix_nano=started)

Trainer(algorithm=steps, trainer_id={name!r}).fit(agent, list(range(25)))
"""


def test_two_trainers_at_once_beside_what_a_killed_one_left(up: Up) -> None:
    """Each run's rewards are its own agent's: no crossing in 1,000 rollouts, and none to or from the dead run."""
    view = ViewClient(up.settings)
    dead = up.start("dead", "time.sleep(600)", program=STEPS_OF_ITS_OWN)
    begun = "SELECT count(*) FROM rollouts WHERE run_id = 'dead' AND status = 'running'"
    eventually(lambda: view.query(begun).scalar(), what="the first run is at work")
    dead.kill()
    dead.communicate(timeout=TIMEOUT_S)
    both = [
        up.start(name, f"return {reward}", program=STEPS_OF_ITS_OWN) for name, reward in (("ones", 1.0), ("zeros", 0.0))
    ]
    for process in both:
        _, err = process.communicate(timeout=TIMEOUT_S)
        assert (process.returncode, err) == (0, "")
    rewards = """
        SELECT run_id, reward, count(*) FROM trajectories
        WHERE final AND run_id IN ('dead', 'ones', 'zeros') AND status = 'succeeded' GROUP BY ALL ORDER BY ALL
    """
    expected = [["ones", 1.0, 500], ["zeros", 0.0, 500]]
    eventually(lambda: [list(row) for row in view.query(rewards).rows] == expected, what="all rewards are shown")
    view.close()


def test_without_a_system_the_advice_is_to_start_one(tmp_path: Path, model: Path) -> None:
    code, _, err = Up(Settings.load(data_dir=tmp_path), model).run("alone")
    assert code == 1
    assert "lightstream up --policy" in one_message(err)


def test_without_a_policy_server_nothing_starts(kafka_servers: str, tmp_path: Path, model: Path) -> None:
    settings = settings_on(kafka_servers, tmp_path)
    with Stack(settings, services=("worker", "proxy")) as stack:
        code, _, err = Up(stack.settings, model).run("no-policy")
    assert code == 1
    assert "no policy server runs" in one_message(err)
    assert "lightstream up --policy" in err


def test_a_program_from_standard_input_trains(up: Up) -> None:
    code, out, err = up.run("good", stdin=True)
    assert code == 0, err
    assert err == "", "nothing went wrong"
    lines = out.splitlines()
    assert sum(line.startswith("step ") for line in lines) >= 2
    assert any("mean reward" in line for line in lines[-3:])
    code, out, err = up.run("good")
    assert (code, err) == (0, "")
    assert "Nothing left to do: 2 of 2 steps of run 'good' are made." in out
    assert up.balance("good").get("trained", 0) > 0


def test_an_agent_that_raises_is_told_at_once_and_after_the_fix_the_same_command_goes_on(up: Up) -> None:
    code, out, err = up.run("raising", "raise ValueError('no such tool')")
    assert code == 1
    assert "no such tool" in out, "on the console, while it runs"
    message = one_message(err)
    assert "all 8 rollouts of step 1 failed; most often: ValueError: no such tool" in message
    assert "the same command goes on" in message
    log = (up.settings.data_dir / "logs" / "raising.log").read_text()
    assert "Traceback" in log
    assert set(up.balance("raising")) == {"attempt_failed"}
    code, _, err = up.run("raising")
    assert (code, err) == (0, "")
    assert up.balance("raising")["attempt_failed"] == 8


@pytest.mark.parametrize(
    ("name", "work", "said"),
    [
        ("rewardless", "return None", "reward"),
        ("text", "return 'very good'", "very good"),
        (
            "wrong-model",
            "await client.chat.completions.create(model='gpt-9', messages=[{'role': 'user', 'content': task}])",
            "gpt-9",
        ),
    ],
)
def test_a_run_that_cannot_learn_ends_with_the_reason(up: Up, name: str, work: str, said: str) -> None:
    code, _, err = up.run(name, work)
    assert code == 1
    assert said in one_message(err)
    reasons = up.balance(name)
    assert sum(reasons.values()) >= 8
    assert "trained" not in reasons


def test_another_model_under_the_same_name_is_refused(up: Up, tmp_path: Path) -> None:
    assert up.run("named", steps=1)[0] == 0
    other = make_tiny_model(tmp_path / "other", seed=5)
    code, _, err = up.run("named", model=str(other))
    assert code == 1
    assert "model: model (" in one_message(err)
    assert "other (" in err


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model": "path/to/model"}, "there is no model folder 'path/to/model'"),
        ({"tasks": "[]"}, "the data set has no tasks"),
    ],
)
def test_what_is_wrong_from_the_start_is_told_before_anything_starts(
    up: Up, changes: dict[str, Any], said: str
) -> None:
    code, out, err = up.run("early", **changes)
    assert code == 1
    assert said in one_message(err)
    assert out == ""


@pytest.mark.parametrize(
    ("name", "said"),
    [("a run/with:odd characters", "which no trainer or run may be called"), (None, "this run has no name")],
)
def test_a_run_needs_a_name(up: Up, name: str | None, said: str) -> None:
    code, out, err = up.run(name, stdin=True)
    assert code == 1
    assert said in err
    assert out == ""


def test_ctrl_c_is_one_line_and_the_same_command_goes_on(up: Up) -> None:
    process = up.start("stopped", steps=2000)
    while not (line := process.stdout.readline()).startswith("step 2"):
        assert line, "it makes steps until it is stopped"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode in (130, -signal.SIGINT)
    assert one_message(err).strip() == "Stopped. The same command goes on with run 'stopped'."
    code, out, err = up.run("stopped", steps=3)
    assert (code, err) == (0, "")
    assert "Run 'stopped' goes on after step" in out or "Nothing left to do" in out
