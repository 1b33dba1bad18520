"""Start the system, train, and show the curve."""

from __future__ import annotations

from rich.console import Console

from examples.system import has_learned, started
from lightstream.trainers import VERL, Settings, Trainer

from .agent import answer
from .documents import TOPIC_OF
from .model import make_model, teach_the_form

__all__ = ["run_rag"]

RUN_ID = "rag"
TASKS, SAMPLES = 8, 16
REWARD_TARGET, REWARD_MIN = 0.95, 0.9
"""Training ends once five steps hold the target; it has succeeded where they hold the minimum."""


def run_rag(settings: Settings, console: Console, *, steps: int, seed: int) -> bool:
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
        sampling_parameters={"max_tokens": 1},
        threads=1,
    )
    with started(settings, console) as settings:
        trainer = Trainer(
            algorithm=algorithm, settings=settings, trainer_id=RUN_ID, runner_concurrency=TASKS * SAMPLES, seed=seed
        )
        trainer.fit(answer, list(TOPIC_OF))
        return has_learned(settings, console, RUN_ID, title="RAG", reward_min=REWARD_MIN)
