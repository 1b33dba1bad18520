"""Start the system, watch it train, and take its account."""

from __future__ import annotations

import math
import sys
import time
from statistics import fmean

from rich.console import Console
from rich.live import Live
from rich.text import Text

from examples.watch import Snapshot, read_curve, render, take_account, take_snapshot
from lightstream.runtime.services import discover
from lightstream.schemas.errors import ServiceUnavailableError
from lightstream.trainers import Settings, ViewClient
from lightstream.up import Stack

from .options import LAST_STEPS, REWARD_TARGET, RUN_ID, Options

__all__ = ["run_demo"]

SERVICES = ("worker", "view", "policy", "proxy")
REFRESH_S = 2.0
REWARD_AT_FIRST_MAX = 0.2
LOGPROB_DIFF_MAX = 1e-3
STALL_S = 180.0
"""No new step for this long (a step takes about a second) means that something is broken."""

GIVEN_MODEL_STALL_S = 3600.0
"""Loading and writing a large model takes minutes, and so may a step of it."""

TRAINER_RESTARTS_MAX = 2
"""A trainer that ends so often without having made a step will not make one."""

MORE_STEPS = 24
"""Further steps that are advised where the reward did not get there."""

QUESTIONS = (
    "SELECT stage, count, reason FROM funnel",
    (
        "SELECT model_version, count(*) AS calls, avg(reward) AS mean_reward FROM triplets "
        "GROUP BY model_version ORDER BY calls LIMIT 5"
    ),
    "SELECT input_json->>'dataset' AS task, count(*), avg(reward) FROM trajectories GROUP BY ALL ORDER BY task",
)


def run_demo(settings: Settings, options: Options, console: Console) -> bool:
    """Run it all; returns whether the reward climbed and nothing was lost."""
    console.print(
        "[bold]Lightstream[/bold]: an agent learns which tool solves a task, from the events it leaves behind."
    )
    console.print(
        f"One rollout is one task from eight data sets of reasoning-gym; {options.groups} tasks, {options.samples} "
        f"rollouts each, a step; at most {options.steps} steps. "
        + (
            f"The model is {options.model}."
            if options.model
            else f"Chance is 1 in 8; it ends when the last {LAST_STEPS} steps hold {REWARD_TARGET}."
        )
    )
    started_s = time.monotonic()
    trainer = (sys.executable, "-m", "examples.tool_router", "train", options.to_json())
    with console.status("Starting Kafka, the stream processors, the view, the LLM proxy and the policy server …"):
        # The proxy records the one call of each rollout; spans of the agent's SDK would only tell of it once more.
        settings = settings.model_copy(update={"instrument": "none"})
        stack = Stack(settings, services=SERVICES, programs={"trainer": trainer})
        stack.start()
    try:
        console.print(f"Everything runs ({time.monotonic() - started_s:.0f} s); logs are in {settings.data_dir}/logs.")
        console.print(f"See it in a browser meanwhile: {discover(stack.settings, 'view').address}")
        view = ViewClient(stack.settings)
        _watch(view, stack, options, console)
        passed = _report(view, stack.settings, options, console)
        view.close()
    finally:
        with console.status("Stopping …"):
            stack.stop()
    console.print(f"Done in {time.monotonic() - started_s:.0f} s.")
    return passed


def _watch(view: ViewClient, stack: Stack, options: Options, console: Console) -> None:
    """Show the live screen until the last step is in the ledger."""
    before: Snapshot | None = None
    changed_s, step, restarts = time.monotonic(), 0, 0
    stall_s = GIVEN_MODEL_STALL_S if options.model else STALL_S
    note = f"the trainer {'loads the model' if options.model else 'makes the model and warms it up'} …"
    with Live(console=console, refresh_per_second=4, transient=True) as live:
        while True:
            now = take_snapshot(view)
            live.update(
                render(now, before, steps=options.steps, title="Lightstream", note=note if not now.step else "")
            )
            if now.step >= options.steps or _has_learned(now, options):
                return
            if now.step != step:
                changed_s, step, restarts = now.monotonic_s, now.step, stack.supervisor.restarts["trainer"]
                if not console.is_terminal and step % 10 == 0:
                    console.print(f"step {step} of {options.steps}: mean reward {now.rewards[-1]:.3f}")
            elif stack.supervisor.restarts["trainer"] - restarts >= TRAINER_RESTARTS_MAX:
                raise _trainer_keeps_ending(stack.settings)
            elif now.monotonic_s - changed_s > stall_s:
                raise ServiceUnavailableError(
                    f"no training step for {stall_s:.0f} s.", next_step="The logs of trainer and worker say why."
                )
            before = now
            time.sleep(REFRESH_S)


def _has_learned(now: Snapshot, options: Options) -> bool:
    """Whether the trainer has ended early, by the rule that it goes by."""
    last = now.rewards[-LAST_STEPS:]
    return not options.model and len(last) == LAST_STEPS and fmean(last) >= REWARD_TARGET


def _trainer_keeps_ending(settings: Settings) -> ServiceUnavailableError:
    log = settings.data_dir / "logs" / "trainer.log"
    said = [line for line in log.read_text("utf-8", errors="replace").splitlines() if line.strip()]
    return ServiceUnavailableError(
        f"the trainer ended {TRAINER_RESTARTS_MAX} times without making a step. It said: {said[-1] if said else ''}",
        next_step=f"The whole log: {log}",
    )


def _report(view: ViewClient, settings: Settings, options: Options, console: Console) -> bool:
    curve = read_curve(view, RUN_ID)
    console.print(Text(curve.text()), no_wrap=True, crop=False)
    picture = curve.save_png(settings.data_dir / "reward.png", title="Tool router: mean reward of each step")
    console.print(f"The curve as a picture: {picture}")
    account = take_account(view)
    console.print(account.table())
    # A step without a usable call compares nothing.
    logprob_diff = max((diff for diff in curve.logprob_diffs_max if math.isfinite(diff)), default=math.nan)
    if options.model:  # what a model of a user's own achieves is theirs to judge
        console.print(f"Mean reward: {curve.first:.3f} in the first five steps, {curve.last:.3f} in the last five.")
        checks: dict[str, tuple[bool, str]] = {}
    else:
        checks = {
            f"mean reward of the first five steps at most {REWARD_AT_FIRST_MAX}": (
                curve.first <= REWARD_AT_FIRST_MAX,
                f"{curve.first:.3f}",
            ),
            f"mean reward of the last five steps at least {REWARD_TARGET}": (
                curve.last >= REWARD_TARGET,
                f"{curve.last:.3f}",
            ),
        }
    if math.isfinite(logprob_diff):  # where no group had a signal, nothing was updated and nothing compared
        checks[f"log-probabilities of rollout and actor differ by less than {LOGPROB_DIFF_MAX:g}"] = (
            logprob_diff < LOGPROB_DIFF_MAX,
            f"{logprob_diff:.1e}",
        )
    checks |= {
        "every LLM call, trajectory and step is accounted for": (account.is_balanced, ""),
    }
    for name, (holds, value) in checks.items():
        console.print(f"{'[green]yes[/green]' if holds else '[red]NO [/red]'}  {name}{': ' + value if value else ''}")
    if not options.model and curve.last < REWARD_TARGET:
        console.print(
            "With more steps, a tool is found again that was lost by chance: .venv/bin/python -m examples.tool_router "
            f"--steps {max(Options.steps, options.steps + MORE_STEPS)}. "
            "Which tasks have the lowest reward is the last of the questions below.",
            soft_wrap=True,
        )
    console.print("\nTry next (the view's file stays; no server needs to run):")
    for question in QUESTIONS:
        print(f'LIGHTSTREAM_DATA_DIR={settings.data_dir} .venv/bin/lightstream sql "{question}"')
    return all(holds for holds, _ in checks.values())
