"""Start the system, train, and show the curve."""

from __future__ import annotations

from rich.console import Console

from examples.system import has_learned, started
from lightstream.trainers import VERL, Settings, Trainer

from .agent import fix
from .bugs import bugs
from .model import make_model, teach_the_form

__all__ = ["run_coding_agent"]

RUN_ID = "coding-agent"
TASKS, SAMPLES = 8, 8
REWARD_TARGET, REWARD_MIN = 0.95, 0.9
"""Training ends once five steps hold the target; it has succeeded where they hold the minimum."""


def run_coding_agent(settings: Settings, console: Console, *, steps: int, seed: int) -> bool:
    """Run it all; returns whether the last steps hold the reward and nothing was lost.

    Raises:
        LightstreamError: a part of the system could not be started, or stopped answering.
    """
    algorithm = VERL(
        model=make_model(settings.data_dir / "model", seed=seed),
        warm_up=teach_the_form(seed),
        steps=steps,
        tasks_per_step=TASKS,
        rollouts_per_task=SAMPLES,
        learning_rate=5e-4,
        weight_decay=0.0,
        lr_warmup_steps=3,
        epochs_per_step=4,
        clip_ratio_high=0.28,
        reward_target=REWARD_TARGET,
        sampling_parameters={"max_tokens": 4},
        threads=1,
    )
    with started(settings, console) as settings:
        trainer = Trainer(
            algorithm=algorithm, settings=settings, trainer_id=RUN_ID, runner_concurrency=TASKS * SAMPLES, seed=seed
        )
        trainer.fit(fix, bugs())
        return has_learned(settings, console, RUN_ID, title="Coding agent", reward_min=REWARD_MIN)
