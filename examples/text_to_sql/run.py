"""Start the system, train, and show the curve."""

from __future__ import annotations

from rich.console import Console

from examples.system import has_learned, started
from lightstream.trainers import VERL, Settings, Trainer

from .agent import answer
from .database import tasks_on, write_database
from .model import make_model, teach_the_form

__all__ = ["run_text_to_sql"]

RUN_ID = "text-to-sql"
TASKS, SAMPLES = 8, 16
REWARD_TARGET, REWARD_MIN = 0.95, 0.9
"""Training ends once five steps hold the target; it has succeeded where they hold the minimum."""


def run_text_to_sql(settings: Settings, console: Console, *, steps: int, seed: int) -> bool:
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
        learning_rate=1e-3,
        weight_decay=0.0,
        lr_warmup_steps=3,
        mini_batches_per_step=2,
        epochs_per_step=2,
        clip_ratio_high=0.28,
        reward_target=REWARD_TARGET,
        sampling_parameters={"max_tokens": 2},
        threads=1,
    )
    tasks = tasks_on(write_database(settings.data_dir.absolute() / "shop.duckdb", seed))
    with started(settings, console) as settings:
        trainer = Trainer(
            algorithm=algorithm, settings=settings, trainer_id=RUN_ID, runner_concurrency=TASKS * SAMPLES, seed=seed
        )
        trainer.fit(answer, tasks)
        return has_learned(settings, console, RUN_ID, title="Text to SQL", reward_min=REWARD_MIN)
