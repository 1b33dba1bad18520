"""A fresh model learns from rollouts that went well, as they were exported: ``python -m examples.export_for_sft``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

from examples.drawers import TASKS, find, make_model, teach_the_form
from examples.program import program
from examples.system import started
from examples.watch import LearningCurve, show_checks
from lightstream.runtime.processes import child_environment
from lightstream.trainers import SFT, VERL, Settings, StepReport, Trainer

SAMPLES, SEQUENCES = 32, 32
"""Of each thing, so that each is found now and then: any drawer is right one time in four."""

REWARD_MIN = 0.9
"""Of the fresh model, after the last step. Before the first one it names any drawer."""


def run_export_for_sft(settings: Settings, console: Console, *, steps: int, seed: int) -> bool:
    """Run it all; returns whether the model that learned the export is right.

    Raises:
        LightstreamError: a part of the system could not be started, or stopped answering.
    """
    model = make_model(settings.data_dir / "model", seed=seed)
    with started(settings, console) as settings:
        _roll_out(settings, model, seed=seed)
        good = _export(settings, settings.data_dir / "good.jsonl")
        curve = _learn(settings, model, good, steps=steps, seed=seed)
        console.print(Text(curve.text()), no_wrap=True, crop=False)
        picture = settings.data_dir / "reward.png"
        title = "An export for SFT: mean reward of the validations"
        console.print(f"The curve as a picture: {curve.save_png(picture, title=title)}")
        last = curve.rewards[-1]
        return show_checks(
            console,
            {
                "before the first step the model was wrong more often than not": curve.rewards[0] < 1 / 2,
                f"after the last one its mean reward is at least {REWARD_MIN}: {last:.3f}": last >= REWARD_MIN,
            },
        )


def _roll_out(settings: Settings, model: Path, *, seed: int) -> None:
    """Have the model, which was taught nothing but the form, answer every task many times."""
    algorithm = VERL(
        model=model,
        warm_up=teach_the_form(seed),
        steps=0,
        val_only=True,
        validation_samples=SAMPLES,
        sampling_parameters={"max_tokens": 1},
        threads=1,
    )
    trainer = Trainer(algorithm=algorithm, settings=settings, trainer_id="tried", runner_concurrency=64, seed=seed)
    trainer.fit(find, TASKS, TASKS)


def _export(settings: Settings, file: Path) -> Path:
    """Write the rollouts with a reward of 1 as conversations, a JSON line each."""
    where = "run_id = 'tried' AND final"
    command = ["export", "chat", str(file), "--where", where, "--reward-min", "1"]
    subprocess.run(
        [sys.executable, "-m", "lightstream.cli", *command],
        env=child_environment(settings),
        stderr=subprocess.STDOUT,  # its note of how many there are
        check=True,
    )
    return file


def _learn(settings: Settings, model: Path, conversations: Path, *, steps: int, seed: int) -> LearningCurve:
    """Fine-tune the model on the conversations; returns what it is worth as an agent, before and after some steps."""
    rewards: dict[int, float] = {}

    def note(report: StepReport) -> None:
        if "validation/reward_mean" in report.metrics:
            rewards[report.step] = report.metrics["validation/reward_mean"]

    algorithm = SFT(
        model=model,
        messages=conversations,
        warm_up=teach_the_form(seed),
        steps=steps,
        epochs=None,
        sequences_per_step=SEQUENCES,
        validate_every=20,
        validation_samples=4,
        learning_rate=5e-3,
        weight_decay=0.0,
        sampling_parameters={"max_tokens": 1},
        threads=1,
    )
    trainer = Trainer(
        algorithm=algorithm,
        settings=settings,
        trainer_id="imitate",
        runner_concurrency=64,
        observers=[note],
        seed=seed,
    )
    trainer.fit(find, [], TASKS)
    return LearningCurve(steps=[*rewards], rewards=[*rewards.values()], logprob_diffs_max=[])


if __name__ == "__main__":
    program("export_for_sft", run_export_for_sft, steps=300)
