"""Start the system, train for some steps that wait for every rollout, then ahead of the slow ones, and compare."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from examples.drawers import TASKS, make_model, teach_the_form
from examples.system import has_learned, started
from lightstream.trainers import VERL, Settings, Trainer, ViewClient

from .agent import look_there

__all__ = ["run_slow_tools"]

WAITING_STEPS = 10
"""Enough to see how long a step takes that waits for its slowest rollout."""

STEPS_AHEAD = 2
TASKS_PER_STEP, SAMPLES = 8, 8
LEARNING_RATE = 1e-3
"""A third of what the same task takes without steps ahead (``examples.sft_then_grpo``): learned from policies that are
two versions old, a wrong drawer was then often there for good."""

REWARD_TARGET, REWARD_MIN = 0.95, 0.9
"""Training ends once five steps hold the target; it has succeeded where they hold the minimum."""

STEPS_PER_MINUTE = """
SELECT run_id, 60e9 * (count(*) - 1) / (max(ended_unix_nano) - min(ended_unix_nano)) FROM training_steps GROUP BY run_id
"""
"""From the first commit on: what comes before it is the same for both."""


def run_slow_tools(settings: Settings, console: Console, *, steps: int, seed: int) -> bool:
    """Run it all; returns whether it has learned ahead of the slow rollouts, and nothing was lost.

    Raises:
        LightstreamError: a part of the system could not be started, or stopped answering.
    """
    model = make_model(settings.data_dir / "model", seed=seed)
    with started(settings, console) as settings:
        _train(settings, "waiting", model, steps=WAITING_STEPS, steps_ahead=0, seed=seed)
        _train(settings, "ahead", model, steps=steps, steps_ahead=STEPS_AHEAD, seed=seed)
        view = ViewClient(settings)
        rates = {str(row[0]): float(row[1]) for row in view.query(STEPS_PER_MINUTE, at_least="now").rows}
        view.close()
        holds = has_learned(settings, console, "ahead", title=f"{STEPS_AHEAD} steps ahead", reward_min=REWARD_MIN)
        console.print(f"Steps a minute: {rates['waiting']:.1f} waiting, {rates['ahead']:.1f} ahead")
        return holds


def _train(settings: Settings, run_id: str, model: Path, *, steps: int, steps_ahead: int, seed: int) -> None:
    algorithm = VERL(
        model=model,
        warm_up=teach_the_form(seed),
        steps=steps,
        tasks_per_step=TASKS_PER_STEP,
        rollouts_per_task=SAMPLES,
        steps_ahead=steps_ahead,
        learning_rate=LEARNING_RATE,
        lr_warmup_steps=5,
        weight_decay=0.0,
        epochs_per_step=4,
        clip_ratio_high=0.28,
        reward_target=REWARD_TARGET,
        sampling_parameters={"max_tokens": 1},
        threads=1,
    )
    trainer = Trainer(
        algorithm=algorithm,
        settings=settings,
        trainer_id=run_id,
        runner_concurrency=TASKS_PER_STEP * SAMPLES * (1 + steps_ahead),
        seed=seed,
    )
    trainer.fit(look_there, TASKS)
