"""Training with rollouts beside the update, by training that waits for them: ``python -m benchmarks.asynchronous``.

The whole system on this machine, with an agent that calls the model once and then waits for a tool. The waits are
log-normal (sigma 0.5) with a mean of twice the seconds of an update, which a first run without waits measures. Runs of
0 and of ``ahead`` steps ahead alternate, ``pairs`` times, with the same number of agent slots, as many as a step has
rollouts. Steps a minute are counted from the second commit to the last. Bar: the ratio at least 2.0, the mean reward of
the last five steps within 0.03, and no token older than the bound.
"""

from __future__ import annotations

import asyncio
import math
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from statistics import fmean, median
from typing import Any, TypedDict

from openai import AsyncOpenAI

from lightstream.producers import rollout
from lightstream.runtime.settings import Settings
from lightstream.schemas.types import LLM, AttemptedRollout
from lightstream.trainers import VERL, StepReport, Trainer, make_tiny_model, teach_answers
from lightstream.up import Stack

from .command import run

SIGMA = 0.5
TASKS, SAMPLES = 8, 16
DIGITS = 10
"""Answers that the warm-up teaches; one of them is right."""


class SlowTask(TypedDict):
    """Which digit to say, and how long the tool takes on average."""

    digit: int
    mean_s: float


@cache
def _client() -> AsyncOpenAI:
    return AsyncOpenAI(base_url="http://localhost", api_key="none", max_retries=2)


@rollout
async def slow_digit(task: SlowTask, llm: LLM, rollout: AttemptedRollout) -> float:
    """One call and one tool; the wait follows from the rollout's place in its run."""
    client = _client().with_options(base_url=llm.get_base_url(rollout.rollout_id, rollout.attempt.attempt_id))
    completion = await client.chat.completions.create(
        model=llm.model,
        messages=[{"role": "user", "content": f"say {task['digit']}"}],
        **llm.sampling_parameters,
    )
    if task["mean_s"]:
        place = rollout.rollout_id.partition("-")[2]
        chance = random.Random(place)  # a delay, not a secret
        await asyncio.sleep(chance.lognormvariate(math.log(task["mean_s"]) - SIGMA**2 / 2, SIGMA))
    return float((completion.choices[0].message.content or "").startswith(str(task["digit"])))


def measure(*, pairs: int = 5, steps: int = 20, ahead: int = 3) -> dict[str, float]:
    """Steps a minute, rewards and ages of both, and the ratio of each pair."""
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings.load(data_dir=Path(folder), topic_partitions=2)
        with Stack(settings, services=("worker", "view", "policy", "proxy")) as stack:
            model = make_tiny_model(Path(folder) / "model")
            probe = _train(stack.settings, model, "probe", mean_s=0.0, steps=6, steps_ahead=0)
            mean_s = 2 * median(report.metrics.get("seconds/update", 0.0) for _, report in probe[1:])
            print(f"mean of the waits: {mean_s:.2f} s", file=sys.stderr, flush=True)
            return {"mean_of_waits_s": mean_s, **_pairs(stack.settings, model, mean_s, pairs, steps, ahead)}


def _pairs(settings: Settings, model: Path, mean_s: float, pairs: int, steps: int, ahead: int) -> dict[str, float]:
    rates: dict[int, list[float]] = {0: [], ahead: []}
    rewards: dict[int, list[float]] = {0: [], ahead: []}
    oldest = 0
    for pair in range(pairs):
        for steps_ahead in (0, ahead):
            name = f"ahead{steps_ahead}x{pair}"
            reports = _train(settings, model, name, mean_s=mean_s, steps=steps, steps_ahead=steps_ahead)
            rates[steps_ahead].append(_rate(reports))
            rewards[steps_ahead].append(fmean(report.mean_reward for _, report in reports[-5:]))
            oldest = max(oldest, *_ages(reports))
            print(
                f"{name}: {rates[steps_ahead][-1]:.1f} steps a minute, last five {rewards[steps_ahead][-1]:.3f}",
                file=sys.stderr,
                flush=True,
            )
    ratios = [ours / theirs for ours, theirs in zip(rates[ahead], rates[0], strict=True)]
    return {
        "steps_per_minute_waiting": median(rates[0]),
        "steps_per_minute_ahead": median(rates[ahead]),
        "ratio": median(ratios),
        "ratio_min": min(ratios),
        "ratio_max": max(ratios),
        "last_reward_waiting": fmean(rewards[0]),
        "last_reward_ahead": fmean(rewards[ahead]),
        "oldest_trained_versions": float(oldest),
    }


def _train(
    settings: Settings, model: Path, name: str, *, mean_s: float, steps: int, steps_ahead: int
) -> list[tuple[float, StepReport]]:
    """When each step was committed, and its report."""
    reports: list[tuple[float, StepReport]] = []

    options: dict[str, Any] = {
        "steps": steps,
        "tasks_per_step": TASKS,
        "rollouts_per_task": SAMPLES,
        "learning_rate": 5e-3,
        "weight_decay": 0.0,
        "epochs_per_step": 2,
        "sampling_parameters": {"max_tokens": 1},
        "steps_ahead": steps_ahead,
        "threads": 1,
        "keep_checkpoints": 8,
    }
    Trainer(
        algorithm=VERL(
            model=model,
            warm_up=teach_answers(["say 0"], [str(digit) for digit in range(DIGITS)], steps=20, end_turn=False),
            **options,
        ),
        settings=settings,
        trainer_id=name,
        n_runners=1,
        runner_concurrency=TASKS * SAMPLES,
        observers=[lambda report: reports.append((time.perf_counter(), report))],
        progress=False,
    ).fit(slow_digit, [SlowTask(digit=0, mean_s=mean_s)])
    return reports


def _rate(reports: list[tuple[float, StepReport]]) -> float:
    return 60 * (len(reports) - 2) / (reports[-1][0] - reports[1][0])


def _ages(reports: list[tuple[float, StepReport]]) -> Iterator[int]:
    for _, report in reports:
        ages = {name: count for name, count in report.metrics.items() if name.startswith("staleness/") and count}
        yield from (int(name.partition("/")[2]) for name in ages)


def main() -> None:
    """Measure and print."""
    from benchmarks import asynchronous  # not __main__: Runner processes import the agent from here

    run(__doc__, asynchronous.measure, pairs=5, steps=20, ahead=3)


if __name__ == "__main__":
    main()
