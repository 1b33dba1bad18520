"""A trainer of the digit task as a program: ``python -m tests.support.digit_trainer STEPS GROUPS SAMPLES``."""

from __future__ import annotations

import os
import signal
import sys
import time

from lightstream.runtime.services import Service, announce
from lightstream.runtime.settings import Settings
from lightstream.schemas.types import RolloutConfig
from tests.support.digits import digit_tasks, say_digit

RUN_ID = "digits"


def main(steps: int, groups: int, samples: int) -> None:
    """Train, going on where the ledger ends; then stay until SIGTERM."""
    settings = Settings.load()
    announce(settings, Service("trainer", "", os.getpid(), time.time_ns()))
    from lightstream.trainers import VERL, Trainer, make_tiny_model, teach_answers

    trainer = Trainer(
        algorithm=VERL(
            model=make_tiny_model(settings.data_dir / "model"),
            warm_up=teach_answers([f"say {n}" for n in range(10)], list("0123456789"), steps=15, end_turn=False),
            steps=steps,
            tasks_per_step=groups,
            rollouts_per_task=samples,
            learning_rate=3e-3,
            weight_decay=0.0,
            sampling_parameters={"max_tokens": 1},
            threads=1,
        ),
        settings=settings,
        trainer_id=RUN_ID,
        n_runners=1,
        runner_concurrency=groups * samples,
        rollout_config=RolloutConfig(
            timeout_seconds=60.0,
            unresponsive_seconds=6.0,
            max_attempts=10,
            retry_condition=["unresponsive", "timeout", "failed"],
        ),
    )
    trainer.fit(say_digit, digit_tasks(steps * groups))
    signal.pause()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:4]))
