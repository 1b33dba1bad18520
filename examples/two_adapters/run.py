"""Start the system, train both policies at once, and show a curve of each."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from examples.system import ACCOUNTED, started
from examples.watch import LearningCurve, show_checks, take_account
from lightstream.trainers import VERL, AgentPolicy, Settings, StepReport, Trainer, ViewClient

from .agent import SIDES, TASKS, debate
from .model import make_model, teach_words

__all__ = ["run_two_adapters"]

POLICIES = tuple(SIDES)
TASKS_PER_STEP, SAMPLES = len(TASKS), 8
REWARD_TARGET, REWARD_MIN = 0.95, 0.9
"""Training ends once the debate's reward holds the target for five steps; it has succeeded where each policy's has the
minimum in the last five."""


def run_two_adapters(settings: Settings, console: Console, *, steps: int, seed: int) -> bool:
    """Run it all; returns whether both policies have learned, and nothing was lost.

    Raises:
        LightstreamError: a part of the system could not be started, or stopped answering.
    """
    with started(settings, console) as settings:
        curves = _train(settings, console, steps=steps, seed=seed)
        view = ViewClient(settings)
        account = take_account(view)
        view.close()
        checks: dict[str, bool] = {}
        for name, curve in curves.items():
            console.print(Text(f"{name}\n{curve.text(height=12)}"), no_wrap=True, crop=False)
            picture = curve.save_png(settings.data_dir / f"{name}.png", title=f"The {name}: mean reward of each step")
            console.print(f"The curve as a picture: {picture}")
            checks[f"{name}: mean reward of the last five steps at least {REWARD_MIN}: {curve.last:.3f}"] = (
                curve.last >= REWARD_MIN
            )
        console.print(account.table())
        return show_checks(console, checks | {ACCOUNTED: account.is_balanced})


def _train(settings: Settings, console: Console, *, steps: int, seed: int) -> dict[str, LearningCurve]:
    """Train both policies; returns the curve of each."""
    curves = {name: LearningCurve(steps=[], rewards=[], logprob_diffs_max=[]) for name in POLICIES}

    def note(report: StepReport) -> None:
        for name, curve in curves.items():
            curve.steps.append(report.step)
            curve.rewards.append(report.metrics[f"policy/{name}/reward/mean"])
        console.print("  " + ", ".join(f"{name} {curve.rewards[-1]:.3f}" for name, curve in curves.items()))

    trainer = Trainer(
        algorithm=VERL(
            model=make_model(settings.data_dir / "model", seed=seed),
            warm_up=teach_words(seed),
            policies={name: AgentPolicy(reward=name) for name in POLICIES},
            steps=steps,
            tasks_per_step=TASKS_PER_STEP,
            rollouts_per_task=SAMPLES,
            learning_rate=2e-3,
            epochs_per_step=4,
            clip_ratio_high=0.28,
            reward_target=REWARD_TARGET,
            sampling_parameters={"max_tokens": 1},
            threads=1,
        ),
        settings=settings,
        trainer_id="two-adapters",
        runner_concurrency=TASKS_PER_STEP * SAMPLES,
        observers=[note],
        seed=seed,
    )
    trainer.fit(debate, TASKS)
    return curves
