"""Rollouts with a model that cannot be trained from here: recorded, scored and accounted for."""

from __future__ import annotations

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from examples.watch import take_account
from lightstream.producers import ProxyLLM
from lightstream.runtime.services import discover
from lightstream.trainers import AlgorithmContext, Settings, Trainer, ViewClient
from lightstream.up import Stack

from .agent import route
from .options import RUN_ID, Options
from .prompts import instructed
from .rollouts import RESOURCE, ROLLOUT_CONFIG, RUNNER_CONCURRENCY, RUNNER_PROCESSES
from .tasks import sample_tasks

__all__ = ["measure_endpoint"]

SERVICES = ("worker", "view", "proxy")

REWARDS = """
SELECT input_json->>'dataset' AS task, count(*) AS rollouts, count(*) FILTER (rollout_status <> 'succeeded') AS failed,
    avg(reward) AS mean_reward
FROM trajectories WHERE final GROUP BY ROLLUP (task) ORDER BY task NULLS LAST
"""
DROPPED = "SELECT reason, count(*) FROM dropped WHERE is_llm_call GROUP BY ALL ORDER BY 2 DESC"
FAILURES = "SELECT error_message FROM trajectories WHERE final AND error_type IS NOT NULL LIMIT 1"


def measure_endpoint(settings: Settings, options: Options, console: Console) -> bool:
    """One step's rollouts with the model at ``options.endpoint``; whether any succeeded and every call is accounted
    for.

    Raises:
        LightstreamError: a part of the system could not be started, or stopped answering.
    """
    console.print(
        f"[bold]Lightstream[/bold]: the model {options.model} at {options.endpoint} picks tools. Its weights cannot be "
        f"updated from here, so nothing is trained: {options.groups} tasks, {options.samples} rollouts each, are "
        "recorded and scored."
    )
    settings = settings.model_copy(update={"llm_upstream_url": options.endpoint.rstrip("/")})
    with console.status("Starting Kafka, the stream processors, the view and the LLM proxy …"):
        stack = Stack(settings, services=SERVICES)
        stack.start()
    try:
        _roll_out(stack.settings, options, console)
        return _report(stack.settings, console)
    finally:
        with console.status("Stopping …"):
            stack.stop()


def _roll_out(settings: Settings, options: Options, console: Console) -> None:
    model = ProxyLLM(
        endpoint=f"{discover(settings, 'proxy').address}/v1",
        model=options.model,
        sampling_parameters={"max_tokens": options.max_tokens, "temperature": 1.0},
    )

    def measure(context: AlgorithmContext) -> None:
        context.publish_resources(context.resources_record(0, {RESOURCE: model}, model=options.model))
        waiting = context.enqueue_step(1, tasks=options.groups, rollouts_per_task=options.samples)
        with Progress(console=console, transient=True) as progress:
            bar = progress.add_task("tasks", total=len(waiting))
            while waiting:
                for group in context.collect(waiting, 1):
                    waiting.remove(group.group_id)
                    progress.advance(bar)

    trainer = Trainer(
        algorithm=measure,
        settings=settings,
        trainer_id=RUN_ID,
        n_runners=RUNNER_PROCESSES,
        runner_concurrency=RUNNER_CONCURRENCY,
        rollout_config=ROLLOUT_CONFIG,
        seed=options.seed,
    )
    trainer.fit(route, sample_tasks(options.groups, seed=options.seed, put=instructed))


def _report(settings: Settings, console: Console) -> bool:
    view = ViewClient(settings)
    account = take_account(view)
    table = Table(title="Reward by task", title_justify="left")
    for column in ("task", "rollouts", "failed", "mean reward"):
        table.add_column(column, justify="left" if column == "task" else "right")
    rows = view.query(REWARDS).rows
    for task, rollouts, failed, reward in rows:
        table.add_row(task or "all", str(rollouts), str(failed), "-" if reward is None else f"{reward:.3f}")
    console.print(table)
    console.print(account.table())
    for reason, count in view.query(DROPPED).rows:
        why = ": the server gives no token ids, so nobody could train on them" if reason == "no_token_ids" else ""
        console.print(f"{count} calls are not training data ({reason}){why}.")
    for (message,) in view.query(FAILURES).rows:
        console.print(f"One of the failures: {message}", markup=False, soft_wrap=True)
    view.close()
    _, total, failed, _ = rows[-1]
    checks = {"rollouts succeeded": failed < total, "every LLM call is accounted for": account.is_balanced}
    for name, holds in checks.items():
        console.print(f"{'[green]yes[/green]' if holds else '[red]NO [/red]'}  {name}")
    return all(checks.values())
