"""``kill -9`` of any process at any moment: the run finishes, and everything is accounted for."""

from __future__ import annotations

import os
import random
import sys
import threading
from pathlib import Path

import pytest

from examples.watch import Account, take_account
from lightstream.runtime.settings import Settings
from lightstream.store_views.client import ViewClient
from lightstream.up import Stack
from tests.support.checkpoints import checkpoint_in
from tests.support.waiting import eventually

VICTIMS: tuple[str, ...] = ("worker", "view", "proxy", "trainer", "broker")
SERVICES = ("worker", "view", "policy", "proxy")
STEPS, GROUPS, SAMPLES = 16, 4, 4
DELAY_S_MAX = 0.5
"""Longer than a step takes, so that a kill falls anywhere in one."""

SEED = int(os.environ.get("LIGHTSTREAM_TEST_SEED", random.SystemRandom().randrange(10**6)))


def _steps_done(view: ViewClient) -> int:
    return int(view.query("SELECT count(*) FROM training_steps").scalar())


def _run_with_kills(data_dir: Path, victims: list[str], seed: int) -> Account:
    """Train; kill each victim at a moment that ``seed`` decides; return the account of the finished run."""
    print(f"victims {victims}, seed {seed} (set LIGHTSTREAM_TEST_SEED to repeat)")
    rng = random.Random(seed)
    # The kills are spread over the run: each waits for a step of its own, then for part of a step.
    after_steps = sorted(rng.randrange(STEPS - 1) for _ in victims)
    settings = Settings.load(data_dir=data_dir, topic_partitions=2, kafka_bootstrap_servers=None)
    trainer = [sys.executable, "-m", "tests.support.digit_trainer", str(STEPS), str(GROUPS), str(SAMPLES)]
    with Stack(settings, services=SERVICES, programs={"trainer": trainer}) as stack:
        view = ViewClient(stack.settings, patience_s=120.0)
        for victim, step in zip(victims, after_steps, strict=True):
            eventually(lambda step=step: _steps_done(view) >= step, what=f"step {step}")  # type: ignore[misc]  # bound per kill
            threading.Event().wait(rng.uniform(0, DELAY_S_MAX))
            print(f"kill -9 {victim} after step {step}")
            stack.kill(victim)
            stack.wait_ready(victim, 600.0)
        eventually(lambda: _steps_done(view) >= STEPS, what="the last step")
        account = take_account(view)
        steps = view.query("SELECT step FROM training_steps ORDER BY log_offset").rows
        assert [row[0] for row in steps] == list(range(1, STEPS + 1)), "a step was repeated or skipped"
        # A step whose groups have one reward each leaves the weights as they are, and has no checkpoint of its own.
        checkpoint = view.query(
            "SELECT checkpoint_url FROM training_steps WHERE checkpoint_url IS NOT NULL ORDER BY step DESC LIMIT 1"
        ).scalar()
        assert checkpoint_in(settings.data_dir, checkpoint).is_dir(), "checkpoint and log disagree"
        view.close()
    return account


def _assert_nothing_was_lost(account: Account) -> None:
    assert account.calls["balanced"], account.calls
    assert account.training["balanced"], account.training
    assert account.training["consumed"] == STEPS * GROUPS * SAMPLES
    assert account.dead_letters == 0
    assert account.calls["pending"] == 0


def test_every_process_killed_in_turn(tmp_path: Path) -> None:
    victims = list(VICTIMS)
    random.Random(SEED).shuffle(victims)
    account = _run_with_kills(tmp_path, victims, SEED)
    _assert_nothing_was_lost(account)


@pytest.mark.soak
@pytest.mark.parametrize("victim", VICTIMS)
@pytest.mark.parametrize("round_number", range(5))
def test_one_process_killed_again_and_again(tmp_path: Path, victim: str, round_number: int) -> None:
    account = _run_with_kills(tmp_path, [victim] * 3, SEED + round_number)
    _assert_nothing_was_lost(account)
