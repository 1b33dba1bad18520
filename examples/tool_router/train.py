"""The trainer's process: makes the tiny model or takes the given one, trains it, and waits to be stopped."""

from __future__ import annotations

import os
import signal
import time

from lightstream.schemas.services import Service, announce
from lightstream.schemas.settings import Settings

from .agent import prompt_of, route
from .options import RUN_ID, Options
from .prompts import brief, instructed
from .rollouts import ROLLOUT_CONFIG, RUNNER_CONCURRENCY, RUNNER_PROCESSES
from .tasks import sample_tasks
from .tools import TOOLS

__all__ = ["train_until_done"]

WARM_UP_STEPS = 150
"""Some seconds in which the random model learns to read (to continue task texts) and that an answer is a letter:
any of the eight, at random. Which one is right, rewards tell."""

LR_WARMUP_STEPS = 10
"""AdamW's first updates are as large as its later ones, whatever the rewards said. Made at the full rate, they can take
a task's right tool away (from 1 in 8 to 1 in 1,000 within ten steps), and a tool that is never called earns nothing. Of
24 trainings of this model without the warm-up one or two end below a reward of 0.95; of 43 with it, none."""


def train_until_done(settings: Settings, options: Options) -> None:
    """Train, going on after the last committed step if there is one; then stay until SIGTERM.

    It stays so that whoever keeps it running does not start it again.
    """
    announce(settings, Service("trainer", "", os.getpid(), time.time_ns()))
    from lightstream.trainers import VERL, Trainer, make_tiny_model, teach_answers

    put = instructed if options.instructed else brief
    tasks = sample_tasks(options.steps * options.groups, seed=options.seed, put=put)
    if options.model:
        model, warm_up = options.model, None
    else:
        model = str(make_tiny_model(settings.data_dir / "model", seed=options.seed))
        prompts = [prompt_of(task)[0]["content"] for task in tasks]
        warm_up = teach_answers(
            prompts, list(TOOLS), steps=WARM_UP_STEPS, end_turn=False, read_prompts=True, seed=options.seed
        )
    trainer = Trainer(
        algorithm=VERL(
            model=model,
            warm_up=warm_up,
            steps=options.steps,
            tasks_per_step=options.groups,
            rollouts_per_task=options.samples,
            learning_rate=options.learning_rate,
            weight_decay=0.0,
            lr_warmup_steps=0 if options.model else LR_WARMUP_STEPS,
            mini_batches_per_step=4,
            epochs_per_step=2,
            clip_ratio_high=0.28,
            sampling_parameters={"max_tokens": options.max_tokens},
            threads=None if options.model else 1,
        ),
        settings=settings,
        trainer_id=RUN_ID,
        n_runners=RUNNER_PROCESSES,
        runner_concurrency=RUNNER_CONCURRENCY,
        rollout_config=ROLLOUT_CONFIG,
        seed=options.seed,
    )
    trainer.fit(route, tasks)
    signal.pause()
