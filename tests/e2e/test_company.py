"""Four runs on one system, killed at random: each has the weights, to the bit, that it has alone."""

from __future__ import annotations

import itertools
import json
import os
import random
import threading
import time
from pathlib import Path

import pytest

from lightstream.runtime.settings import Settings
from lightstream.trainers import ViewClient, make_tiny_model
from lightstream.up import Stack
from tests.support.checkpoints import checkpoint_in
from tests.support.forked import Forked

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 3000.0
SEED = int(os.environ.get("LIGHTSTREAM_TEST_SEED", str(time.time_ns() % 10_000)))
RUNS = {"a": "one", "b": "one", "c": "two", "team": "one", "tuned": "two"}
"""Run -> its model. Two have the same one; ``team`` trains two adapters, ``tuned`` learns from conversations."""

PROGRAM = """
import sys
from openai import AsyncOpenAI
from lightstream.producers import rollout
from lightstream.trainers import SFT, VERL, AgentPolicy, Trainer

async def said_by(llm, text):
    async with AsyncOpenAI(base_url=llm.endpoint, api_key="none", max_retries=0) as client:
        completion = await client.chat.completions.create(
            model=llm.model, messages=[{"role": "user", "content": text}], **llm.sampling_parameters
        )
    return completion.choices[0].message.content or ""

@rollout
async def short(task, llm):
    said = await said_by(llm, task)
    return sum(ord(character) % 2 == 0 for character in said) / 6

@rollout
async def pair(task, resources, rollout):
    said = await said_by(resources["planner"].with_attempted_rollout(rollout), task)
    said += await said_by(resources["solver"].with_attempted_rollout(rollout), task + said)
    return sum(ord(character) % 2 == 0 for character in said) / 12

name, model, steps, conversations = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
options = dict(model=model, threads=1, learning_rate=1e-2, keep_checkpoints=2)
asking = dict(steps=steps, tasks_per_step=2, rollouts_per_task=4, sampling_parameters={"max_tokens": 4}, **options)
if name == "tuned":
    algorithm = SFT(messages=conversations, epochs=None, steps=steps, sequences_per_step=2, **options)
elif name == "team":
    algorithm = VERL(policies={"planner": AgentPolicy(), "solver": AgentPolicy()}, **asking)
else:
    algorithm = VERL(**asking)
agent = None if name == "tuned" else pair if name == "team" else short
tasks = [] if agent is None else ["one", "two", "three", "four"]
Trainer(
    algorithm=algorithm, trainer_id=name, seed=3, progress=False, n_runners=0 if agent is None else 1
).fit(agent, tasks)
"""


@pytest.mark.soak
@pytest.mark.parametrize(("steps", "kills"), [(20, 5)])
def test_runs_killed_beside_others_have_the_weights_that_they_have_alone(
    tmp_path: Path, steps: int, kills: int
) -> None:
    print(f"LIGHTSTREAM_TEST_SEED={SEED}")
    for number, name in enumerate(("one", "two")):
        make_tiny_model(tmp_path / name, seed=number)
    conversations = tmp_path / "chat.jsonl"
    turns = [[{"role": "user", "content": f"{n}?"}, {"role": "assistant", "content": f"it is {n}"}] for n in range(40)]
    conversations.write_text("".join(json.dumps({"messages": turn}) + "\n" for turn in turns))
    alone: dict[str, dict[str, bytes]] = {}
    for name in RUNS:
        with stack_in(tmp_path / "alone" / name) as stack:
            arguments = [name, str(tmp_path / RUNS[name]), str(steps), str(conversations)]
            until_done(stack, arguments)
            alone[name] = weights(stack, name)
    chance = random.Random(SEED)
    victims = [chance.choice(sorted(RUNS)) for _ in range(kills)]
    with stack_in(tmp_path / "company") as stack:
        trainers = [
            threading.Thread(
                target=until_done,
                args=(stack, [name, str(tmp_path / model), str(steps), str(conversations)]),
                kwargs={"kills_after": [chance.randint(1, steps - 1) for victim in victims if victim == name]},
            )
            for name, model in RUNS.items()
        ]
        for trainer in trainers:
            trainer.start()
        for trainer in trainers:
            trainer.join(TIMEOUT_S)
        for name in RUNS:
            assert weights(stack, name) == alone[name], name
        check_account(stack, steps)


def stack_in(folder: Path) -> Stack:
    return Stack(Settings.load(data_dir=folder), services=("worker", "view", "policy", "proxy"))


def until_done(stack: Stack, arguments: list[str], kills_after: list[int] | None = None) -> None:
    """Train to the end; SIGKILL each time that the run has so many steps, and start it again."""
    view = ViewClient(stack.settings, patience_s=120.0)
    left = sorted(kills_after or [])
    while True:
        with Forked(["-c", PROGRAM, *arguments], os.environ | stack.settings.to_environment(), ROOT) as program:
            while left and program.poll() is None:
                if steps_of(view, arguments[0]) >= left[0]:
                    left.pop(0)
                    program.kill()
                    break
            else:
                _, said = program.communicate(TIMEOUT_S)
                assert program.returncode == 0, said
                view.close()
                return


def steps_of(view: ViewClient, run_id: str) -> int:
    made: int = view.query("SELECT count(*) FROM training_steps WHERE run_id = ?", params=[run_id]).scalar()
    return made


def weights(stack: Stack, run_id: str) -> dict[str, bytes]:
    """The files with weights of the run's last checkpoint."""
    view = ViewClient(stack.settings, patience_s=120.0)
    address = view.query(
        "SELECT checkpoint_url FROM training_steps WHERE run_id = ? AND checkpoint_url IS NOT NULL "
        "ORDER BY step DESC LIMIT 1",
        at_least="now",
        params=[run_id],
    ).scalar()
    view.close()
    folder = checkpoint_in(stack.settings.data_dir, address)
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*.safetensors")}


def check_account(stack: Stack, steps: int) -> None:
    """Each run has all its steps, and was sampled from its own versions alone."""
    view = ViewClient(stack.settings, patience_s=120.0)
    rows = view.query("SELECT run_id, step FROM training_steps ORDER BY run_id, step", at_least="now").rows
    sampled = view.query("SELECT DISTINCT run_id, model_version FROM triplets", at_least="now").rows
    view.close()
    assert [tuple(row) for row in rows] == list(itertools.product(sorted(RUNS), range(1, steps + 1)))
    assert sampled
    assert all(model.startswith((f"{run_id}@", f"{run_id}/")) for run_id, model in sampled), sampled
