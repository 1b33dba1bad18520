"""Start the system, imitate, then learn from rewards, and show the curve."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from examples.drawers import TASKS, find, make_model, teach_the_form
from examples.system import has_learned, started
from examples.watch import read_curve, show_checks
from lightstream.trainers import SFT, VERL, Settings, Trainer, ViewClient, checkpoint_folder

from .conversations import write_conversations

__all__ = ["run_sft_then_grpo"]

SFT_RUN, GRPO_RUN = "imitate", "improve"
CONVERSATIONS, EPOCHS, SEQUENCES = 256, 20, 32
TASKS_PER_STEP, SAMPLES = 8, 8

IMITATED_MIN, REWARD_MIN, REWARD_TARGET = 0.5, 0.9, 0.95
"""Mean reward of the first step of GRPO, and of the last five. Who imitates is right in seven of ten answers, and who
names any drawer in a quarter. Training ends once five steps hold the target."""

IMITATED = "SELECT checkpoint_url FROM resources WHERE run_id = 'imitate' ORDER BY version DESC LIMIT 1"


def run_sft_then_grpo(settings: Settings, console: Console, *, steps: int, seed: int) -> bool:
    """Run it all; returns whether both have taught what they can, and nothing was lost.

    Raises:
        LightstreamError: a part of the system could not be started, or stopped answering.
    """
    with started(settings, console) as settings:
        _imitate(settings, seed=seed)
        view = ViewClient(settings)
        imitated = checkpoint_folder(str(view.query(IMITATED, at_least="now").scalar()), settings)
        _improve(settings, imitated, steps=steps, seed=seed)
        has_improved = has_learned(settings, console, GRPO_RUN, title="GRPO after SFT", reward_min=REWARD_MIN)
        first = read_curve(view, GRPO_RUN).rewards[0]
        view.close()
        said = f"after SFT, the first step of GRPO has at least {IMITATED_MIN}: {first:.3f}"
        return show_checks(console, {said: first >= IMITATED_MIN}) and has_improved


def _imitate(settings: Settings, *, seed: int) -> None:
    algorithm = SFT(
        model=make_model(settings.data_dir / "model", seed=seed),
        messages=write_conversations(settings.data_dir / "conversations.jsonl", CONVERSATIONS, seed),
        warm_up=teach_the_form(seed),
        epochs=EPOCHS,
        sequences_per_step=SEQUENCES,
        learning_rate=5e-3,
        weight_decay=0.0,
        threads=1,
    )
    Trainer(algorithm=algorithm, n_runners=0, settings=settings, trainer_id=SFT_RUN, seed=seed).fit(None, [])


def _improve(settings: Settings, model: Path, *, steps: int, seed: int) -> None:
    algorithm = VERL(
        model=model,
        steps=steps,
        tasks_per_step=TASKS_PER_STEP,
        rollouts_per_task=SAMPLES,
        learning_rate=3e-3,
        weight_decay=0.0,
        epochs_per_step=4,
        clip_ratio_high=0.28,
        sampling_parameters={"max_tokens": 1},
        reward_target=REWARD_TARGET,
        threads=1,
    )
    trainer = Trainer(
        algorithm=algorithm,
        settings=settings,
        trainer_id=GRPO_RUN,
        runner_concurrency=TASKS_PER_STEP * SAMPLES,
        seed=seed,
    )
    trainer.fit(find, TASKS)
