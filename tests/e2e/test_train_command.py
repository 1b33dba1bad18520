"""``lightstream train`` and ``lightstream runner``: a run from the command line, its Runners elsewhere."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from lightstream.store_views.client import ViewClient
from lightstream.trainers import make_tiny_model
from lightstream.up import Stack
from tests.support.checkpoints import checkpoint_in
from tests.support.forked import run_forked
from tests.support.program import COMMAND
from tests.support.topics import settings_on
from tests.support.waiting import eventually

STEPS, GROUPS, SAMPLES = 3, 2, 4
TIMEOUT_S = 1500.0

AGENT = """
from openai import AsyncOpenAI

from lightstream.producers import LLM, rollout


@rollout
async def answer(task: str, llm: LLM) -> float:
    client = AsyncOpenAI(base_url=llm.endpoint, api_key=llm.api_key or "none")
    completion = await client.chat.completions.create(
        model=llm.model, messages=[{"role": "user", "content": task}], **llm.sampling_parameters
    )
    return float(len(completion.choices[0].message.content or "") % 2)
"""


def test_a_run_with_its_runner_in_another_process(kafka_servers: str, tmp_path: Path) -> None:
    (tmp_path / "parity.py").write_text(AGENT, "utf-8")
    (tmp_path / "tasks.jsonl").write_text('"one"\n\n"two"\n"three"\n', "utf-8")
    model = make_tiny_model(tmp_path / "model")
    options: dict[str, object] = {
        "steps": STEPS,
        "tasks_per_step": GROUPS,
        "rollouts_per_task": SAMPLES,
        "model": model,
        "threads": 1,
    }
    options["sampling_parameters"] = '{"max_tokens": 4}'
    sets = [text for name, value in options.items() for text in ("--set", f"{name}={value}")]
    with Stack(settings_on(kafka_servers, tmp_path), services=("worker", "view", "policy", "proxy")) as stack:
        environment = os.environ | stack.settings.to_environment()
        train = [*COMMAND, "train", "parity.py:answer", "--tasks", "tasks.jsonl", "--algorithm", "rloo", *sets]
        runner = subprocess.Popen(
            [*COMMAND, "runner", "parity.py:answer", "--rollouts", str(STEPS * GROUPS * SAMPLES)],
            cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        done = run_forked([*train[1:], "--runners", "0"], environment, tmp_path, TIMEOUT_S)
        said, errors = runner.communicate(timeout=TIMEOUT_S)
        view = ViewClient(stack.settings)
        query = "SELECT step, made_with->>'algorithm' FROM training_steps ORDER BY step"
        eventually(lambda: len(view.query(query).rows) == STEPS, what="all steps are shown")
        steps = view.query(query).rows
        weights = view.query("SELECT max_by(checkpoint_url, step) FROM training_steps").scalar()
        view.close()
        (tmp_path / "same.py").write_text("def reward(attempt):\n    return attempt.trajectory.reward\n")
        fork = ["fork", "parity", "--reward", "same.py"]
        same, fewer = (
            run_forked([*COMMAND[1:], *fork, *more], environment, tmp_path, TIMEOUT_S)
            for more in (["--format", "json"], ["--without", "rollout_id LIKE '%-0'", "--out", "fewer"])
        )
    assert (done.returncode, done.stderr) == (0, "")
    assert (runner.returncode, errors) == (0, "")
    assert [(row[0], row[1]) for row in steps] == [(step, "VERL rloo") for step in range(1, STEPS + 1)]
    assert "Run 'parity' begins" in done.stdout
    assert (same.returncode, fewer.returncode) == (0, 0), same.stderr + fewer.stderr
    forked = json.loads(same.stdout)
    committed = checkpoint_in(stack.settings.data_dir, weights) / "model.safetensors"
    assert (Path(forked["weights"]) / "model.safetensors").read_bytes() == committed.read_bytes()
    assert [step["fork"]["reward/mean"] for step in forked["steps"]] == [
        step["committed"]["reward/mean"] for step in forked["steps"]
    ]
    assert f"{STEPS * GROUPS} of {STEPS * GROUPS * SAMPLES} attempts are left out" in fewer.stderr
    assert "Run parity: committed, and as a fork" in fewer.stdout
    assert list((tmp_path / "fewer").glob("step-*/model.safetensors"))
    assert "takes rollouts of run 'parity', 16 at once" in said
    assert f"{STEPS * GROUPS * SAMPLES} attempts ended, 0 running" in said
