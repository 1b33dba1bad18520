"""The trainer's process: makes the model, trains, and waits to be stopped."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from lightstream.schemas.services import Service, announce
from lightstream.schemas.settings import Settings

from .agent import route
from .options import RUN_ID, Options
from .tasks import sample_tasks

__all__ = ["train_until_done"]

RUNNER_PROCESSES = 1
RUNNER_CONCURRENCY = 128
ROLLOUT_UNRESPONSIVE_S = 10.0
ROLLOUT_TIMEOUT_S = 120.0


def train_until_done(settings: Settings, options: Options) -> None:
    """Train, going on after the last committed step if there is one; then stay until SIGTERM.

    It stays so that whoever keeps it running does not start it again.
    """
    announce(settings, Service("trainer", "", os.getpid(), time.time_ns()))
    from lightstream.schemas.records import AttemptStatus, RolloutConfig
    from lightstream.trainers import VERL, Trainer

    model = Path(options.model) if options.model else _tiny_model(settings, options)
    trainer = Trainer(
        algorithm=VERL(
            model=model,
            steps=options.steps,
            groups_per_step=options.groups,
            samples_per_group=options.samples,
            learning_rate=options.learning_rate,
            sampling_parameters={"temperature": 1.0, "max_tokens": options.max_tokens},
        ),
        settings=settings,
        trainer_id=RUN_ID,
        n_runners=RUNNER_PROCESSES,
        runner_concurrency=RUNNER_CONCURRENCY,
        rollout_config=RolloutConfig(
            timeout_seconds=ROLLOUT_TIMEOUT_S,
            unresponsive_seconds=ROLLOUT_UNRESPONSIVE_S,
            max_attempts=5,
            retry_condition=[AttemptStatus.UNRESPONSIVE, AttemptStatus.TIMEOUT, AttemptStatus.FAILED],
        ),
        seed=options.seed,
    )
    trainer.fit(route, sample_tasks(options.steps * options.groups, seed=options.seed))
    signal.pause()


def _tiny_model(settings: Settings, options: Options) -> Path:
    """The tiny model, made once: a restarted trainer goes on from its checkpoints."""
    folder = settings.data_dir / "model"
    if not (folder / "made").exists():
        from .model import make_model

        make_model(folder, seed=options.seed)
        (folder / "made").touch()
    return folder
