"""Start the system, train by the twenty lines or by the built-in VERL, and show the curve."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from statistics import fmean
from typing import Any

from rich.console import Console

from examples.drawers import TASKS, find, make_model, teach_the_form
from examples.watch import show_checks, show_result
from lightstream.producers import Runner
from lightstream.trainers import (
    VERL,
    KafkaLightningStore,
    Policy,
    Settings,
    Trainer,
    ViewClient,
)
from lightstream.up import Stack

from .grpo import grpo

__all__ = ["REWARD_MIN", "run_grpo", "steps_to"]

RUN_ID = "twenty-lines"
TASKS_PER_STEP, SAMPLES, UPDATES = 8, 8, 4
CONCURRENCY = TASKS_PER_STEP * SAMPLES
REWARD_MIN, LAST_STEPS = 0.95, 5
"""The task is learned at the first step with which so many in a row have this mean."""

ACCOUNTED = "every LLM call, trajectory and step is accounted for"


def steps_to(rewards: Sequence[float], reward: float = REWARD_MIN, steps: int = LAST_STEPS) -> int | None:
    """How many steps there were when the last ``steps`` of them had a mean reward of ``reward``; ``None``: never."""
    means = ((n, fmean(rewards[n - steps : n])) for n in range(steps, len(rewards) + 1))
    return next((n for n, mean in means if mean >= reward), None)


def options_of(settings: Settings, seed: int) -> dict[str, Any]:
    """Options that both are given."""
    return {
        "model": make_model(settings.data_dir / "model", seed=seed),
        "warm_up": teach_the_form(seed),
        "learning_rate": 3e-3,
        "weight_decay": 0.0,
        "clip_ratio_high": 0.28,
        "sampling_parameters": {"max_tokens": 1},
        "threads": 1,
    }


def run_grpo(settings: Settings, console: Console, *, steps: int, seed: int, built_in: bool) -> bool:
    """Run it all; returns whether the task is learned and nothing was lost.

    Raises:
        LightstreamError: a part of the system could not be started, or stopped answering.
    """
    settings = settings.model_copy(update={"instrument": "none"})  # the proxy records every call
    console.print("Starting Kafka, the worker, the view, the policy server and the LLM proxy …")
    with Stack(settings, services=("worker", "view", "policy", "proxy")) as stack:
        if built_in:
            _train_by_verl(stack.settings, steps=steps, seed=seed)
        else:
            asyncio.run(_train(stack.settings, steps=steps, seed=seed))
        view = ViewClient(stack.settings)
        picture = settings.data_dir / "reward.png"
        title = "GRPO in twenty lines: mean reward of each step"
        curve, is_balanced = show_result(view, RUN_ID, console, picture=picture, title=title)
        view.close()
        needed = steps_to(curve.rewards)
        said = f"five steps hold {REWARD_MIN}: " + (f"after {needed}" if needed else f"the last have {curve.last:.3f}")
        holds = show_checks(console, {said: needed is not None, ACCOUNTED: is_balanced})
        console.print("Stopping …")
    return holds


async def _train(settings: Settings, *, steps: int, seed: int) -> None:
    """Train, with the agents in this process."""
    store = KafkaLightningStore(settings)
    await store.start()
    runner = Runner(store, find, run_id=RUN_ID, settings=settings, n_concurrent=CONCURRENCY)
    rolling_out = asyncio.create_task(runner.run())
    try:
        policy = Policy(seed=seed, store=store, **options_of(settings, seed))
        await grpo(RUN_ID, policy, TASKS, tasks=TASKS_PER_STEP, steps=steps, updates=UPDATES, settings=settings)
    finally:
        runner.stop()
        with suppress(asyncio.CancelledError):
            await rolling_out
        await store.close()


def _train_by_verl(settings: Settings, *, steps: int, seed: int) -> None:
    trainer = Trainer(
        algorithm=VERL(
            steps=steps,
            tasks_per_step=TASKS_PER_STEP,
            rollouts_per_task=SAMPLES,
            epochs_per_step=UPDATES,
            **options_of(settings, seed),
        ),
        settings=settings,
        trainer_id=RUN_ID,
        runner_concurrency=CONCURRENCY,
        seed=seed,
    )
    trainer.fit(find, TASKS)
