"""The same seed twice, each time with a system, topics and weights of its own: the same rewards, step by step.

The second time the run has another name, four Runners in place of one, and a proxy that is killed twice, so that the
agent's SDK asks again. Three calls of each attempt are made at once.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from lightstream.runtime.settings import Settings
from lightstream.trainers import ViewClient, make_tiny_model
from lightstream.up import Stack
from tests.support.checkpoints import checkpoint_in
from tests.support.forked import Forked
from tests.support.topics import settings_on
from tests.support.waiting import eventually

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 1500.0

PROGRAM = """
import asyncio, json, sys
from openai import AsyncOpenAI
from lightstream.producers import rollout
from lightstream.trainers import VERL, Trainer

@rollout
async def even(task, llm):
    async with AsyncOpenAI(base_url=llm.endpoint, api_key="none", max_retries=20) as client:
        async def ask(text):
            completion = await client.chat.completions.create(
                model=llm.model, messages=[{"role": "user", "content": text}], **llm.sampling_parameters
            )
            return completion.choices[0].message.content or ""

        said = "".join(await asyncio.gather(*(ask(task + mark) for mark in ("", "?", "!"))))
        said += await ask(task + said)
    return sum(ord(character) % 2 == 0 for character in said) / 12

reports = []
algorithm = VERL(
    model=sys.argv[1], steps=5, tasks_per_step=4, rollouts_per_task=4, learning_rate=1e-2, threads=1,
    mini_batches_per_step=2, epochs_per_step=2, sampling_parameters={"max_tokens": 3},
)
Trainer(
    algorithm=algorithm, trainer_id=sys.argv[2], seed=3, n_runners=int(sys.argv[3]), observers=[reports.append],
    progress=False,
).fit(even, ["one", "two", "three", "four", "five"])
print(json.dumps([report.metrics for report in reports]))
"""


def train(
    settings: Settings, model: Path, name: str, runners: int, kills_at: Sequence[int] = ()
) -> tuple[list[dict[str, float]], bytes]:
    """Metrics of each step, and the last weights.

    Args:
        kills_at: so many steps are there when the proxy is killed.
    """
    with Stack(settings, services=("worker", "view", "policy", "proxy")) as stack:
        environment = os.environ | stack.settings.to_environment()
        view = ViewClient(stack.settings, patience_s=120.0)
        with Forked(["-c", PROGRAM, str(model), name, str(runners)], environment, ROOT) as program:
            for count in kills_at:
                eventually(lambda count=count: program.poll() is not None or steps_in(view) >= count)  # type: ignore[misc]  # bound at once
                stack.kill("proxy")
            out, said = program.communicate(TIMEOUT_S)
        assert program.returncode == 0, said
        address = view.query(
            "SELECT checkpoint_url FROM training_steps WHERE checkpoint_url IS NOT NULL ORDER BY step DESC LIMIT 1",
            at_least="now",
        ).scalar()
        view.close()
        made: list[dict[str, float]] = json.loads(out.splitlines()[-1])
        return made, (checkpoint_in(stack.settings.data_dir, address) / "model.safetensors").read_bytes()


def steps_in(view: ViewClient) -> int:
    made: int = view.query("SELECT count(*) FROM training_steps").scalar()
    return made


def test_the_same_seed_gives_the_same_steps(kafka_servers: str, tmp_path: Path) -> None:
    model = make_tiny_model(tmp_path / "model", seed=2)
    first, weights = train(settings_on(kafka_servers, tmp_path / "first"), model, "seeded", 1)
    second, others = train(settings_on(kafka_servers, tmp_path / "second"), model, "another", 4, kills_at=(1, 3))
    assert len(first) == len(second) == 5
    for one, other in zip(first, second, strict=True):
        assert one["reward/mean"] == other["reward/mean"]
        for name in one.keys() & other.keys():
            if not name.startswith(("seconds/", "tokens_per_second/", "trajectories/")):
                assert one[name] == pytest.approx(other[name], abs=1e-5), name
    assert weights == others
    assert len({step["reward/mean"] for step in first}) > 1, "something happened"
