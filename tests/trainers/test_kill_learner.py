"""Kill a learner from traffic between two of its lines: the versions are those of an undisturbed one, to the bit."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from lightstream.runtime.kafka import create_topics
from lightstream.runtime.settings import Settings
from lightstream.schemas.records import TrainingStep
from lightstream.schemas.topics import TRAINING_STEPS
from lightstream.trainers import make_tiny_model
from tests.support.checkpoints import checkpoint_in
from tests.support.forked import run_forked

from .support.killed_trainer import part_of
from .support.traffic import publish, simulated
from .test_kill_trainer import ROOT, SEED, TIMEOUT_S, records

WINDOWS = 3


def steps_of(settings: Settings) -> list[TrainingStep]:
    return [record for record in records(settings, TRAINING_STEPS) if isinstance(record, TrainingStep)]


def check_killed_learner(settings: Settings, learner: str, *, kills: int) -> None:
    settings = settings.model_copy(update={"proxy_url": "http://127.0.0.1:9"})  # nobody calls it here
    model = make_tiny_model(settings.data_dir / "model")
    parts = [part_of(settings, name) for name in ("whole", "killed")]
    for part in parts:
        part.data_dir.mkdir()
        create_topics(part)
        publish(part, simulated(50))
    options: dict[str, object] = {
        "model": model, "learner": learner, "steps": WINDOWS, "seed": SEED, "kills": kills, "commit-kills": 1
    }  # fmt: skip
    program = ["-m", "tests.trainers.support.killed_trainer"]
    program += [text for name, value in options.items() for text in (f"--{name}", str(value))]
    done = run_forked(program, os.environ | settings.to_environment(), ROOT, TIMEOUT_S)
    assert done.returncode == 0, done.stderr[-4000:]
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    print(f"LIGHTSTREAM_TEST_SEED={SEED}: {result}")
    assert result["killed_at"], "it was killed at least once"
    whole, killed = (steps_of(part) for part in parts)
    assert [step.resources_id for step in whole] == [f"learner-v{version}" for version in range(1, WINDOWS + 1)]
    for one, other in zip(whole, killed, strict=True):
        assert one.consumed == other.consumed
        assert one.window is not None
        assert other.window is not None
        same = {"positions": [], "closed_at_unix_nano": 0}  # other topics, written at another time
        assert one.window.model_copy(update=same) == other.window.model_copy(update=same)
    consumed = [(c.rollout_id, c.attempt_id) for step in killed for c in step.consumed]
    assert len(consumed) == len(set(consumed)), "each trajectory at most once"
    weights = [
        (checkpoint_in(part.data_dir, steps[-1].checkpoint_url) / "model.safetensors").read_bytes()
        for part, steps in zip(parts, (whole, killed), strict=True)
    ]
    assert weights[0] == weights[1]
    assert weights[0] != (Path(model) / "model.safetensors").read_bytes()


@pytest.mark.parametrize("learner", ["reinforce", "sft"])
def test_a_killed_learner_makes_the_versions_of_an_undisturbed_one(settings: Settings, learner: str) -> None:
    check_killed_learner(settings, learner, kills=3)


@pytest.mark.soak
def test_a_learner_killed_twenty_times(settings: Settings) -> None:
    check_killed_learner(settings, "reinforce", kills=20)
