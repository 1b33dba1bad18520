"""Kill the trainer between any two of its lines: nothing is repeated, nothing skipped, log and checkpoint agree."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import pytest

from lightstream.schemas.codec import codec_for
from lightstream.schemas.kafka import create_topics
from lightstream.schemas.records import TrainingStep
from lightstream.schemas.settings import Settings
from lightstream.schemas.topics import TRAINING_STEPS
from lightstream.trainers import make_tiny_model
from lightstream.trainers.ledger.reading import read_whole_topic

from .support.killed_trainer import GROUPS, SIZE

SEED = int(os.environ.get("LIGHTSTREAM_TEST_SEED", str(time.time_ns() % 10_000)))
ROOT = Path(__file__).parents[2]
TIMEOUT_S = 280.0


def with_own_topics(settings: Settings, name: str) -> Settings:
    own = settings.model_copy(
        update={
            "topic_prefix": f"t{uuid.uuid4().hex[:12]}.",
            "data_dir": settings.data_dir / name,
            "proxy_url": "http://127.0.0.1:9",
        }
    )
    own.data_dir.mkdir()
    create_topics(own)
    return own


def train(settings: Settings, **options: object) -> dict[str, Any]:
    arguments = [part for name, value in options.items() for part in (f"--{name}", str(value))]
    done = subprocess.run(
        [sys.executable, "-m", "tests.trainers.support.killed_trainer", *arguments],
        cwd=ROOT,
        env=os.environ | settings.to_environment(),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def ledger(settings: Settings) -> list[TrainingStep]:
    records = read_whole_topic(settings, TRAINING_STEPS, codec_for(settings), group_id="test", timeout_s=60)
    return [record for record in records if isinstance(record, TrainingStep)]


def check(settings: Settings, steps: int, file: str, expected: bytes | None) -> bytes:
    """The whole account; returns the last checkpoint's ``file``."""
    committed = ledger(settings)
    assert [step.step for step in committed] == list(range(1, steps + 1))
    consumed = [c.rollout_id for step in committed for c in step.consumed]
    wanted = {
        f"trainer-s{step}-g{group}-{sample}"
        for step in range(1, steps + 1)
        for group in range(GROUPS)
        for sample in range(SIZE)
    }
    assert sorted(consumed) == sorted(wanted), "every rollout in exactly one step"
    for before, after in itertools.pairwise(committed):
        low = {p.partition: p.offset for p in before.low_water}
        assert all(low[p.partition] <= p.offset for p in after.low_water)
    last = Path(committed[-1].checkpoint_url or "")
    content = (last / file).read_bytes()
    assert expected is None or content == expected, "the same trajectories make the same checkpoint"
    on_disk = {path.name for path in last.parent.iterdir()}
    assert on_disk <= {Path(step.checkpoint_url or "").name for step in committed}, "nothing that the log does not name"
    return content


@pytest.mark.parametrize("series", range(3))
def test_killed_between_two_lines(settings: Settings, series: int) -> None:
    steps, seed = 4, SEED + series
    print(f"LIGHTSTREAM_TEST_SEED={SEED}")
    whole = with_own_topics(settings, "whole")
    lines = train(whole, steps=steps)["lines"]
    expected = check(whole, steps, "chain", None)
    killed = with_own_topics(settings, "killed")
    result = train(killed, steps=steps, lines=lines, seed=seed, kills=6)
    assert result["killed_at"], "it was killed at least once"
    check(killed, steps, "chain", expected)


@pytest.mark.parametrize("ahead", [0, 1])
def test_verl_killed_between_two_lines_has_the_same_weights(settings: Settings, tmp_path: Path, ahead: int) -> None:
    print(f"LIGHTSTREAM_TEST_SEED={SEED}")
    steps = 3
    model = make_tiny_model(tmp_path / "model")
    whole = with_own_topics(settings, "whole")
    lines = train(whole, steps=steps, model=model, ahead=ahead)["lines"]
    weights = check(whole, steps, "model.safetensors", None)
    killed = with_own_topics(settings, "killed")
    result = train(killed, steps=steps, lines=lines, seed=SEED, model=model, ahead=ahead, kills=3)
    assert result["killed_at"]
    # With a step ahead, which groups a step takes depends on which came first.
    check(killed, steps, "model.safetensors", None if ahead else weights)


@pytest.mark.soak
@pytest.mark.parametrize("series", range(40))
def test_killed_between_two_lines_many_times(settings: Settings, series: int) -> None:
    test_killed_between_two_lines(settings, 1000 + series)
