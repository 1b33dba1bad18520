"""Start the system, train for a few steps, and show one rollout as it was recorded."""

from __future__ import annotations

import json
from typing import Any

from rich.console import Console
from rich.table import Table

from examples.tool_router.agent import prompt_of
from examples.tool_router.tasks import sample_tasks
from examples.watch import take_account
from lightstream.trainers import VERL, Settings, StepReport, Trainer, ViewClient, make_tiny_model, teach_answers
from lightstream.up import SERVICES, Stack

from .agent import ANSWERS, TOOL_SPAN, pick_and_judge

__all__ = ["run_two_calls"]

RUN_ID = "two-calls"
WARM_UP_STEPS = 20
"""Two seconds, in which the random model learns that an answer is one of these letters, not which one is right."""

ONE_ROLLOUT = (
    "SELECT rollout_id, attempt_id, reward FROM trajectories WHERE final ORDER BY reward DESC, rollout_id LIMIT 1"
)
ITS_SPANS = """
SELECT span.name, span.attributes, span.llm_response_json,
    triplet.prompt_token_count, triplet.response_token_count, triplet.policy_version, triplet.reward
FROM spans AS span
LEFT JOIN triplets AS triplet USING (rollout_id, attempt_id, span_id)
WHERE span.rollout_id = '{0}' AND span.attempt_id = '{1}' AND (span.is_llm_call OR span.name = '{2}')
ORDER BY span.start_unix_nano
"""
CALLS_PER_TRAJECTORY = "SELECT DISTINCT call_count FROM trajectories WHERE final"
CALLS = 2


def run_two_calls(settings: Settings, console: Console, *, steps: int, groups: int, samples: int) -> bool:
    """Run it all; returns whether each rollout has both its calls and nothing was lost.

    Raises:
        LightstreamError: a part of the system could not be started, or stopped answering.
    """
    console.print("Starting Kafka, the stream processors, the view, the LLM proxy, the gateway and the policy server …")
    with Stack(settings, services=SERVICES) as stack:
        _train(stack.settings, console, steps=steps, groups=groups, samples=samples)
        view = ViewClient(stack.settings)
        account = take_account(view)
        console.print(_one_rollout(view))
        console.print(account.table())
        calls_per_trajectory = [row[0] for row in view.query(CALLS_PER_TRAJECTORY).rows]
        view.close()
        checks = {
            f"every trajectory has {CALLS} calls": calls_per_trajectory == [CALLS],
            "every LLM call, trajectory and step is accounted for": account.is_balanced,
        }
        for name, holds in checks.items():
            console.print(f"{'[green]yes[/green]' if holds else '[red]NO [/red]'}  {name}")
        console.print("Stopping …")
    return all(checks.values())


def _train(settings: Settings, console: Console, *, steps: int, groups: int, samples: int) -> None:
    tasks = sample_tasks(steps * groups, seed=0)
    prompts = [prompt_of(task)[0]["content"] for task in tasks]

    def show(report: StepReport) -> None:
        console.print(
            f"step {report.step} of {steps}: {report.rollouts} rollouts, {report.calls} calls, "
            f"mean reward {report.mean_reward:.3f}"
        )

    trainer = Trainer(
        algorithm=VERL(
            model=make_tiny_model(settings.data_dir / "model"),
            warm_up=teach_answers(prompts, ANSWERS, steps=WARM_UP_STEPS, end_turn=False),
            steps=steps,
            tasks_per_step=groups,
            rollouts_per_task=samples,
            learning_rate=1e-3,
            weight_decay=0.0,
            sampling_parameters={"max_tokens": 1},
            threads=1,
        ),
        settings=settings,
        trainer_id=RUN_ID,
        n_runners=1,
        runner_concurrency=groups * samples,
        observers=[show],
    )
    trainer.fit(pick_and_judge, tasks)


def _one_rollout(view: ViewClient) -> Table:
    """The best-rewarded rollout: its calls and its tool, in order."""
    rollout_id, attempt_id, reward = view.query(ONE_ROLLOUT).rows[0]
    table = Table(
        title=f"Rollout {rollout_id}: reward {reward:g}", caption="prompt, response: in tokens", title_justify="left"
    )
    for column in ("span", "said", "prompt", "response", "policy", "reward"):
        table.add_column(column, justify="left" if column in ("span", "said") else "right")
    for name, attributes, response, *numbers in view.query(ITS_SPANS.format(rollout_id, attempt_id, TOOL_SPAN)).rows:
        table.add_row(
            name, _said(attributes, response), *("" if number is None else f"{number:g}" for number in numbers)
        )
    return table


def _said(attributes: Any, response_json: str | None) -> str:
    if response_json is None:
        values: dict[str, Any] = json.loads(attributes) if isinstance(attributes, str) else attributes
        return f"{values['tool.name']}: {values['tool.answer'] or 'no answer'}"
    return repr(json.loads(response_json).get("content"))
