"""The same seed twice, each time with a system, topics and weights of its own: the same rewards, step by step."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from lightstream.runtime.settings import Settings
from lightstream.trainers import make_tiny_model
from lightstream.up import Stack
from tests.support.forked import run_forked
from tests.support.topics import settings_on

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 1500.0

PROGRAM = """
import json, sys
from openai import AsyncOpenAI
from lightstream.producers import rollout
from lightstream.trainers import VERL, Trainer

@rollout
async def even(task, llm):
    client = AsyncOpenAI(base_url=llm.endpoint, api_key="none")
    said = ""
    for turn in range(2):
        completion = await client.chat.completions.create(
            model=llm.model, messages=[{"role": "user", "content": task + said}], **llm.sampling_parameters
        )
        said += completion.choices[0].message.content or ""
    return sum(ord(character) % 2 == 0 for character in said) / 6

reports = []
algorithm = VERL(
    model=sys.argv[1], steps=5, tasks_per_step=4, rollouts_per_task=4, learning_rate=1e-2, threads=1,
    mini_batches_per_step=2, epochs_per_step=2, sampling_parameters={"max_tokens": 3},
)
Trainer(
    algorithm=algorithm, trainer_id="seeded", seed=3, n_runners=2, observers=[reports.append], progress=False
).fit(even, ["one", "two", "three", "four", "five"])
print(json.dumps([report.metrics for report in reports]))
"""


def train(settings: Settings, model: Path) -> list[dict[str, float]]:
    """Metrics of each step."""
    with Stack(settings, services=("worker", "view", "policy", "proxy")) as stack:
        environment = os.environ | stack.settings.to_environment()
        done = run_forked(["-c", PROGRAM, str(model)], environment, ROOT, TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    made: list[dict[str, float]] = json.loads(done.stdout.splitlines()[-1])
    return made


def test_the_same_seed_gives_the_same_steps(kafka_servers: str, tmp_path: Path) -> None:
    model = make_tiny_model(tmp_path / "model", seed=2)
    first, second = (train(settings_on(kafka_servers, tmp_path / name), model) for name in ("first", "second"))
    assert len(first) == len(second) == 5
    for one, other in zip(first, second, strict=True):
        assert one["reward/mean"] == other["reward/mean"]
        for name in one.keys() & other.keys():
            if not name.startswith(("seconds/", "tokens_per_second/", "trajectories/")):
                assert one[name] == pytest.approx(other[name], abs=1e-5), name
    assert len({step["reward/mean"] for step in first}) > 1, "something happened"
