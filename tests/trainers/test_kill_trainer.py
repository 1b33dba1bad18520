"""Kill the trainer between any two of its lines: nothing is repeated, nothing skipped, log and checkpoint agree."""

from __future__ import annotations

import itertools
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from lightstream.runtime.kafka import create_topics
from lightstream.runtime.schema_registry import codec_for
from lightstream.runtime.settings import Settings
from lightstream.schemas.records import Record, ResourcesRecord, TrainingStep
from lightstream.schemas.topics import RESOURCES, TRAINING_STEPS, Topic
from lightstream.trainers import make_tiny_model
from lightstream.trainers.algorithms.replaying import replay_training
from lightstream.trainers.ledger.reading import read_topic
from tests.support.checkpoints import checkpoint_in
from tests.support.forked import run_forked

from .support.killed_trainer import GROUPS, SIZE, part_of

SEED = int(os.environ.get("LIGHTSTREAM_TEST_SEED", str(time.time_ns() % 10_000)))
ROOT = Path(__file__).parents[2]
TIMEOUT_S = 1500.0
POLICY_SIZE = 8
"""Rollouts of a task, by default."""


def train_whole_and_killed(settings: Settings, **options: object) -> tuple[Settings, Settings, list[str]]:
    """Train twice on the same trajectories: undisturbed, and killed again and again at moments that a seed draws."""
    settings = settings.model_copy(update={"proxy_url": "http://127.0.0.1:9"})  # nobody calls it here
    whole, killed = part_of(settings, "whole"), part_of(settings, "killed")
    for part in (whole, killed):
        part.data_dir.mkdir()
        create_topics(part)
    arguments = [text for name, value in options.items() for text in (f"--{name.replace('_', '-')}", str(value))]
    program = ["-m", "tests.trainers.support.killed_trainer", *arguments]
    done = run_forked(program, os.environ | settings.to_environment(), ROOT, TIMEOUT_S)
    assert done.returncode == 0, done.stderr[-4000:]
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    print(f"LIGHTSTREAM_TEST_SEED={SEED}: {result}")
    assert result["killed_at"], "it was killed at least once"
    return whole, killed, result["killed_at"]


def records(settings: Settings, topic: Topic) -> list[Record]:
    return [record for _, record in read_topic(settings, topic, codec_for(settings), group_id="test")]


def check(settings: Settings, steps: int, file: str, expected: bytes | None, *, size: int = SIZE) -> bytes:
    """The whole account of groups of this size; returns the last checkpoint's ``file``."""
    committed = [record for record in records(settings, TRAINING_STEPS) if isinstance(record, TrainingStep)]
    assert [step.step for step in committed] == list(range(1, steps + 1))
    consumed = [c.rollout_id for step in committed for c in step.consumed]
    wanted = {
        f"trainer-s{step}-g{group}-{sample}"
        for step in range(1, steps + 1)
        for group in range(GROUPS)
        for sample in range(size)
    }
    assert sorted(consumed) == sorted(wanted), "every rollout in exactly one step"
    for before, after in itertools.pairwise(committed):
        low = {p.partition: p.offset for p in before.low_water}
        assert all(low[p.partition] <= p.offset for p in after.low_water)
    addresses = [step.checkpoint_url for step in committed if step.checkpoint_url is not None]
    last = checkpoint_in(settings.data_dir, addresses[-1])
    content = (last / file).read_bytes()
    assert expected is None or content == expected, "the same trajectories make the same checkpoint"
    named = {record.checkpoint_url for record in records(settings, RESOURCES) if isinstance(record, ResourcesRecord)}
    assert {path.relative_to(settings.data_dir).as_posix() for path in last.parent.iterdir()} <= named, (
        "nothing that the log does not name"
    )
    return content


def check_chains(settings: Settings, seed: int, *, kills: int = 6, consumer: int = 0) -> None:
    whole, killed, _ = train_whole_and_killed(settings, steps=4, seed=seed, kills=kills, consumer=consumer)
    undisturbed = check(whole, 4, "chain", None)
    # A consumer takes the groups that are complete first, which may be those of the step after.
    check(killed, 4, "chain", None if consumer else undisturbed)


def check_weights(settings: Settings, *, steps: int, ahead: int, **options: object) -> list[str]:
    """Returns where it was killed."""
    model = make_tiny_model(settings.data_dir / "model")
    size = SIZE + (options.get("advantage") == "remax")  # a greedy rollout more
    whole, killed, killed_at = train_whole_and_killed(settings, steps=steps, model=model, ahead=ahead, **options)
    weights = check(whole, steps, "model.safetensors", None, size=size)
    # With a step ahead, which groups a step takes depends on which came first.
    killed_weights = check(killed, steps, "model.safetensors", None if ahead else weights, size=size)
    replayed = replay_training(killed, "trainer", killed.data_dir / "replayed")
    assert (replayed.differing, replayed.other_weights) == ({}, [])
    assert (replayed.weights / "model.safetensors").read_bytes() == killed_weights
    return killed_at


def check_team(settings: Settings, *, steps: int, kills: int, **options: object) -> list[str]:
    """Two policies, each with an adapter; returns where it was killed."""
    model = make_tiny_model(settings.data_dir / "model")
    whole, killed, killed_at = train_whole_and_killed(
        settings, steps=steps, model=model, team=1, kills=kills, **options
    )
    for policy in ("planner", "solver"):
        file = f"{policy}/adapter_model.safetensors"
        check(killed, steps, file, check(whole, steps, file, None))
    replayed = replay_training(killed, "trainer", killed.data_dir / "replayed")
    assert (replayed.differing, replayed.other_weights) == ({}, [])
    assert replayed.compared
    assert replayed.compared == replayed.steps[-len(replayed.compared) :], "those of which the weights are kept"
    return killed_at


def check_policy(settings: Settings, *, steps: int, kills: int) -> None:
    """The algorithm of ``examples.grpo_in_twenty_lines``: the same weights, to the bit, as without kills."""
    model = make_tiny_model(settings.data_dir / "model")
    whole, killed, killed_at = train_whole_and_killed(
        settings, steps=steps, model=model, consumer=1, seed=SEED + 4000, kills=kills
    )
    weights = check(whole, steps, "model.safetensors", None, size=POLICY_SIZE)
    check(killed, steps, "model.safetensors", weights, size=POLICY_SIZE)
    assert len(killed_at) == kills


@pytest.mark.parametrize("series", range(3))
def test_killed_between_two_lines(settings: Settings, series: int) -> None:
    check_chains(settings, SEED + series)


def test_a_consumer_killed_between_two_lines(settings: Settings) -> None:
    check_chains(settings, SEED, consumer=1)


@pytest.mark.soak
def test_a_consumer_killed_twenty_times(settings: Settings) -> None:
    check_chains(settings, SEED, consumer=1, kills=20)


def test_an_algorithm_over_primitives_killed_between_two_lines(settings: Settings) -> None:
    check_policy(settings, steps=3, kills=2)


@pytest.mark.soak
def test_an_algorithm_over_primitives_killed_twenty_times(settings: Settings) -> None:
    check_policy(settings, steps=20, kills=20)  # enough that all twenty come


@pytest.mark.parametrize("ahead", [0, 1])
def test_verl_killed_between_two_lines_has_the_same_weights(settings: Settings, ahead: int) -> None:
    check_weights(settings, steps=3, ahead=ahead, seed=SEED, kills=3)


@pytest.mark.parametrize("advantage", ["gae", "remax"])
def test_a_critic_and_greedy_rollouts_killed_between_two_lines(settings: Settings, advantage: str) -> None:
    check_weights(settings, steps=3, ahead=0, seed=SEED, kills=2, advantage=advantage)


def test_several_policies_killed_between_two_lines(settings: Settings) -> None:
    check_team(settings, steps=3, seed=SEED + 5000, kills=2)


@pytest.mark.soak
def test_several_policies_killed_twenty_times(settings: Settings) -> None:
    killed_at = check_team(settings, steps=20, seed=SEED + 5000, kills=20, commit_kills=8, checkpoint_every=3)
    assert len(killed_at) == 20


@pytest.mark.soak
@pytest.mark.parametrize("series", range(40))
def test_killed_between_two_lines_many_times(settings: Settings, series: int) -> None:
    check_chains(settings, SEED + 1000 + series)


@pytest.mark.soak
@pytest.mark.parametrize("ahead", [0, 1])
@pytest.mark.parametrize("series", range(5))
def test_verl_killed_between_two_lines_many_times(settings: Settings, ahead: int, series: int) -> None:
    check_weights(settings, steps=3, ahead=ahead, seed=SEED + 2000 + series, kills=3)


@pytest.mark.soak
@pytest.mark.parametrize("ahead", [0, 2])
def test_thirty_kills_ten_of_them_between_weights_and_swap(settings: Settings, ahead: int) -> None:
    """Enough steps that all thirty come; checkpoints rarer than kills, so that most restarts make steps again."""
    killed_at = check_weights(
        settings, steps=60, ahead=ahead, seed=SEED + 3000, kills=30, commit_kills=10, checkpoint_every=5
    )
    assert len(killed_at) == 30
    assert sum("(commit)" in place for place in killed_at) >= 5, "the others came a moment too late"
