"""Start the system, train, and show the curve."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.text import Text

from examples.watch import read_curve, take_account
from lightstream.trainers import VERL, Settings, StepReport, Trainer, ViewClient, VllmOptions
from lightstream.up import Stack

from .agent import count_ware, sample_tasks
from .model import make_model, teach_the_form

__all__ = ["run_tool_agent"]

RUN_ID = "tool-agent"
TASKS, SAMPLES = 16, 8
LEARNING_RATE = 5e-4
"""With twice of it, a shelf was often lost for good (in trials of the learning alone, without Kafka)."""

REWARD_TARGET, LAST_STEPS = 0.95, 5
"""Training ends once so many steps hold this mean; it has succeeded where they hold :data:`REWARD_MIN`."""

REWARD_MIN = 0.9


def _vllm(python: Path) -> VllmOptions:
    """On the CPU, small."""
    return VllmOptions(
        python=str(python),
        arguments=(
            *("--max-model-len", "256", "--max-num-seqs", "32", "--dtype", "float32", "--enforce-eager"),
            *("--enable-auto-tool-choice", "--tool-call-parser", "hermes"),
        ),
        environment={
            "VLLM_TARGET_DEVICE": "cpu",
            "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "HF_HUB_OFFLINE": "1",
        },
    )


def run_tool_agent(
    settings: Settings, console: Console, *, steps: int, seed: int, vllm_python: Path | None = None
) -> bool:
    """Run it all; returns whether the last steps hold the reward and nothing was lost.

    Raises:
        LightstreamError: a part of the system could not be started, or stopped answering.
    """
    # The proxy records both calls of a rollout; spans of the agent's SDK would only tell of them once more.
    settings = settings.model_copy(update={"instrument": "none"})
    services = ("worker", "view", "proxy") if vllm_python else ("worker", "view", "policy", "proxy")
    console.print(f"Starting Kafka, {', '.join(services)} …")
    with Stack(settings, services=services) as stack:
        servers = None if vllm_python is None else _vllm(vllm_python)
        _train(stack.settings, console, steps=steps, seed=seed, servers=servers)
        view = ViewClient(stack.settings)
        curve, account = read_curve(view, RUN_ID), take_account(view)
        view.close()
        console.print(Text(curve.text()), no_wrap=True, crop=False)
        picture = curve.save_png(settings.data_dir / "reward.png", title="Tool agent: mean reward of each step")
        console.print(f"The curve as a picture: {picture}")
        console.print(account.table())
        checks = {
            f"mean reward of the last five steps at least {REWARD_MIN}: {curve.last:.3f}": curve.last >= REWARD_MIN,
            "every LLM call, trajectory and step is accounted for": account.is_balanced,
        }
        for name, holds in checks.items():
            console.print(f"{'[green]yes[/green]' if holds else '[red]NO [/red]'}  {name}")
        console.print("Stopping …")
    return all(checks.values())


def _train(settings: Settings, console: Console, *, steps: int, seed: int, servers: VllmOptions | None) -> None:
    tasks = sample_tasks(steps * TASKS, seed)

    def show(report: StepReport) -> None:
        console.print(
            f"step {report.step} of at most {steps}: {report.rollouts} rollouts, {report.calls} calls, "
            f"mean reward {report.mean_reward:.3f}"
        )

    trainer = Trainer(
        algorithm=VERL(
            model=make_model(settings.data_dir / "model", seed=seed),
            warm_up=teach_the_form(seed),
            steps=steps,
            tasks_per_step=TASKS,
            rollouts_per_task=SAMPLES,
            learning_rate=LEARNING_RATE,
            weight_decay=0.0,
            lr_warmup_steps=5,
            mini_batches_per_step=4,
            epochs_per_step=2,
            clip_ratio_high=0.28,
            reward_target=REWARD_TARGET,
            reward_target_steps=LAST_STEPS,
            sampling_parameters={"max_tokens": 8},
            servers=servers,
            threads=1,
        ),
        settings=settings,
        trainer_id=RUN_ID,
        n_runners=1,
        runner_concurrency=32,
        observers=[show],
        seed=seed,
    )
    trainer.fit(count_ware, tasks)
