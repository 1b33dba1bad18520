"""Two runs on one system, at once and one after the other: each is sampled from its own weights, by its own name.

One is gone on with after the other, after a restart, in a data folder that was moved, and by a trainer that sees the
folder at another path.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from lightstream.runtime.settings import Settings
from lightstream.trainers import ViewClient, make_tiny_model
from lightstream.up import Stack
from tests.support.forked import Forked

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 900.0
GAP_MAX = 1e-3

PROGRAM = """
import sys
from openai import AsyncOpenAI
from lightstream.producers import rollout
from lightstream.trainers import VERL, Trainer

@rollout
async def short(task, llm):
    async with AsyncOpenAI(base_url=llm.endpoint, api_key="none", max_retries=0) as client:
        completion = await client.chat.completions.create(
            model=llm.model, messages=[{"role": "user", "content": task}], **llm.sampling_parameters
        )
    said = completion.choices[0].message.content or ""
    return sum(ord(character) % 2 == 0 for character in said) / 6

name, model, steps = sys.argv[1], sys.argv[2], int(sys.argv[3])
algorithm = VERL(
    model=model, steps=steps, tasks_per_step=2, rollouts_per_task=4, learning_rate=1e-2, threads=1,
    sampling_parameters={"max_tokens": 4}, keep_checkpoints=3,
)
Trainer(algorithm=algorithm, trainer_id=name, seed=3, progress=False).fit(short, ["one", "two", "three", "four"])
"""


def begin(stack: Stack, name: str, model: Path, steps: int, **variables: str) -> Forked:
    environment = os.environ | stack.settings.to_environment() | variables
    return Forked(["-c", PROGRAM, name, str(model), str(steps)], environment, ROOT)


def end(*programs: Forked) -> None:
    for program in programs:
        with program:
            _, said = program.communicate(timeout=TIMEOUT_S)
        assert program.returncode == 0, said


def account(stack: Stack) -> dict[str, list[int]]:
    """The steps of each run, after a check that every call was sampled from the run's own weights."""
    view = ViewClient(stack.settings, patience_s=120.0)
    sampled = view.query("SELECT DISTINCT run_id, model_version FROM triplets", at_least="now").rows
    rows = view.query(
        "SELECT run_id, step, metrics['logprob_diff_max'] FROM training_steps ORDER BY run_id, step",
        at_least="now",
    ).rows
    view.close()
    assert {(run_id, model.partition("@")[0]) for run_id, model in sampled} == {("a", "a"), ("b", "b")}
    assert all(gap < GAP_MAX for _, _, gap in rows), rows
    made: dict[str, list[int]] = {}
    for run_id, step, _ in rows:
        made.setdefault(run_id, []).append(step)
    return made


def test_runs_go_on_beside_and_after_each_other(tmp_path: Path) -> None:
    models = {name: make_tiny_model(tmp_path / name, seed=seed) for seed, name in enumerate(("a", "b"), 1)}
    place = tmp_path / "data"
    with Stack(Settings.load(data_dir=place), services=("worker", "view", "policy", "proxy")) as stack:
        end(begin(stack, "a", models["a"], 2), begin(stack, "b", models["b"], 2))
        end(begin(stack, "b", models["b"], 3))
        end(begin(stack, "a", models["a"], 3))
        assert account(stack) == {"a": [1, 2, 3], "b": [1, 2, 3]}
    moved = Path(shutil.move(place, tmp_path / "moved"))
    with Stack(Settings.load(data_dir=moved), services=("worker", "view", "policy", "proxy")) as stack:
        end(begin(stack, "a", models["a"], 4))
        mounted = tmp_path / "mounted"
        mounted.symlink_to(moved)
        end(begin(stack, "a", models["a"], 5, LIGHTSTREAM_DATA_DIR=str(mounted)))
        assert account(stack) == {"a": [1, 2, 3, 4, 5], "b": [1, 2, 3]}
