"""The trainer's process: makes the tiny model or takes the given one, trains it, and waits to be stopped."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightstream.runtime.services import Service, announce
from lightstream.runtime.settings import Settings

from .agent import prompt_of, route
from .options import LAST_STEPS, REWARD_TARGET, RUN_ID, Options
from .prompts import brief, instructed
from .rollouts import ROLLOUT_CONFIG, RUNNER_CONCURRENCY, RUNNER_PROCESSES
from .tasks import Task, sample_tasks
from .tools import TOOLS

if TYPE_CHECKING:
    from lightstream.trainers import VERL

__all__ = ["algorithm_of", "tasks_of", "train_until_done"]

WARM_UP_STEPS = 150
"""Some seconds in which the random model learns to read (to continue task texts) and that an answer is a letter:
any of the eight, at random. Which one is right, rewards tell."""

LR_WARMUP_STEPS = 10
"""AdamW's first updates are as large as its later ones, whatever the rewards said. Made at the full rate, they can take
a task's right tool away (from 1 in 8 to 1 in 1,000 within ten steps), and a tool that is never called earns nothing."""


def tasks_of(options: Options) -> list[Task]:
    """The data set: as many tasks as the steps take."""
    put = instructed if options.instructed else brief
    return sample_tasks(options.steps * options.groups, seed=options.seed, put=put)


def algorithm_of(options: Options, data_dir: Path) -> VERL:
    """The algorithm; makes the tiny model in ``data_dir`` unless another was given."""
    from lightstream.trainers import VERL, make_tiny_model, teach_answers

    common: dict[str, Any] = {
        "steps": options.steps,
        "tasks_per_step": options.groups,
        "rollouts_per_task": options.samples,
        "learning_rate": options.learning_rate,
        "weight_decay": 0.0,
        "mini_batches_per_step": 4,
        "epochs_per_step": 2,
        "clip_ratio_high": 0.28,
        "sampling_parameters": {"max_tokens": options.max_tokens},
    }
    if options.model:
        return VERL(model=options.model, **common)
    prompts = [prompt_of(task)[0]["content"] for task in tasks_of(options)]
    return VERL(
        model=make_tiny_model(data_dir / "model", seed=options.seed),
        warm_up=teach_answers(
            prompts, list(TOOLS), steps=WARM_UP_STEPS, end_turn=False, read_prompts=True, seed=options.seed
        ),
        lr_warmup_steps=LR_WARMUP_STEPS,
        reward_target=REWARD_TARGET,
        reward_target_steps=LAST_STEPS,
        threads=1,
        **common,
    )


def train_until_done(settings: Settings, options: Options) -> None:
    """Train, going on after the last committed step if there is one; then stay until SIGTERM.

    It stays so that whoever keeps it running does not start it again.
    """
    announce(settings, Service("trainer", "", os.getpid(), time.time_ns()))
    from lightstream.trainers import Trainer

    trainer = Trainer(
        algorithm=algorithm_of(options, settings.data_dir),
        settings=settings,
        trainer_id=RUN_ID,
        n_runners=RUNNER_PROCESSES,
        runner_concurrency=RUNNER_CONCURRENCY,
        rollout_config=ROLLOUT_CONFIG,
        seed=options.seed,
    )
    trainer.fit(route, tasks_of(options))
    signal.pause()
