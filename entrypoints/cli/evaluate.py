"""``lightstream eval``: runs an evaluation with a progress bar and prints the results of each model."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import SettingsError

from .agents import code_of, load_agent, name_of_file
from .environments import name_of_environment, no_options_without_environment, only_environment
from .load import needs
from .runner import agent_of
from .train import read_tasks

if TYPE_CHECKING:
    from lightstream.producers import LitAgent
    from lightstream.trainers.evaluation import Comparison, Estimate, Evaluation, Summary

console = Console(highlight=False)
progress_console = Console(stderr=True, highlight=False)


@dataclass(frozen=True, slots=True)
class Evaluated:
    """An agent and the tasks that it is evaluated on.

    Attributes:
        name: default name of the evaluation; empty: it must be named.
        metadata: of each task, where it is of a set.
        identity: tells the agent and its rewards from others.
    """

    name: str
    agent: LitAgent[Any]
    tasks: Sequence[Any]
    metadata: Sequence[Mapping[str, Any]] = ()
    identity: str = ""

    def evaluation(
        self, name: str | None, models: Sequence[str], samples: int, sampling: Mapping[str, Any]
    ) -> Evaluation:
        """The evaluation of some models.

        Raises:
            SettingsError: it has no name, no model, or a model twice.
        """
        with needs("view"):
            from lightstream.trainers.evaluation import Evaluation
        run_id = name or self.name
        if not run_id:
            raise SettingsError("the evaluation of a command has no name.", next_step="Add --name NAME.")
        return Evaluation(run_id, self.tasks, models, samples, sampling, self.metadata)


def evaluated_of(
    settings: Settings,
    agent: str | None,
    command: str | None,
    verifier: str | None,
    reward: str,
    tasks: Path | None,
    env: str | None,
    env_options: Sequence[str],
    *,
    tasks_optional: bool = False,
) -> Evaluated:
    """An agent with a file of tasks, or an environment with its validation tasks, else all that it has.

    Args:
        tasks_optional: without a file, there are no tasks.

    Raises:
        SettingsError: there are both or neither, or one of them is none.
    """
    if env is not None:
        environment = only_environment(
            env, env_options, agent=agent, command=command, tasks=tasks, **{"--verifier": verifier}
        )
        chosen_set = environment.validation or environment.task_set
        tasks_of_set = [task.input for task in chosen_set.tasks]
        metadata = [chosen_set.metadata_of(number) for number in range(len(chosen_set))]
        name = f"eval-{name_of_environment(env)}"
        return Evaluated(name, environment, tasks_of_set, metadata, " ".join([code_of(env), *env_options]))
    no_options_without_environment(env_options)
    chosen = agent_of(settings, agent, command, verifier, reward)
    if tasks is None and not tasks_optional:
        raise SettingsError(
            "no file of tasks is named.", next_step="Name one with --tasks FILE, or an environment with --env."
        )
    found = [] if tasks is None else read_tasks(tasks)
    if isinstance(chosen, str):
        return Evaluated(f"eval-{name_of_file(chosen)}", load_agent(chosen), found, identity=code_of(chosen))
    return Evaluated("", chosen, found, identity=json.dumps([command, verifier, reward]))


def run_evaluation(
    settings: Settings,
    agent: LitAgent[Any],
    evaluation: Evaluation,
    *,
    passes_from: float,
    concurrency: int,
    at_least: float | None,
    at_most_worse: float | None,
    as_json: bool,
) -> bool:
    """Evaluate and print the results. The same command goes on with an evaluation that was interrupted.

    Returns:
        Whether every model's mean reward is at least ``at_least``, and every model but the first is at most
        ``at_most_worse`` worse than that. Two models without a task in common cannot be compared: then not.

    Raises:
        ServiceUnavailableError: Kafka, the proxy or the view does not answer.
    """
    from lightstream.trainers.evaluation import comparison, summary

    answer(settings, agent, evaluation, concurrency)
    found = evaluation.results(settings)
    models = evaluation.models
    summaries = [summary(found[model], passes_from=passes_from) for model in models]
    compared = [comparison(found[model], found[models[0]]) for model in models[1:]]
    if as_json:
        models_json = [asdict(one) for one in summaries]
        compared_json = [asdict(one) for one in compared if one]
        print(json.dumps({"run": evaluation.run_id, "models": models_json, "compared": compared_json}))
    else:
        _print(evaluation.run_id, summaries, [one for one in compared if one is not None])
    is_good = at_least is None or all(one.reward.mean >= at_least for one in summaries)
    is_as_good = at_most_worse is None or all(one is not None and one.is_not_worse(at_most_worse) for one in compared)
    return is_good and is_as_good


def answer(settings: Settings, agent: LitAgent[Any], evaluation: Evaluation, concurrency: int) -> None:
    """Run the rollouts of an evaluation, with a progress bar on standard error. Blocks.

    Raises:
        KeyboardInterrupt: it was interrupted; the same command goes on with it.
        ServiceUnavailableError: Kafka or the proxy does not answer.
    """
    total = len(evaluation.tasks) * len(evaluation.models) * evaluation.samples
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=progress_console, transient=True) as progress:
        bar = progress.add_task(evaluation.run_id, total=total)

        async def until_interrupted() -> None:
            task = asyncio.create_task(
                evaluation.run(
                    settings, agent, concurrency=concurrency, on_ended=lambda ended: progress.advance(bar, ended)
                )
            )
            for number in (signal.SIGINT, signal.SIGTERM):
                asyncio.get_running_loop().add_signal_handler(number, task.cancel)
            await task

        try:
            asyncio.run(until_interrupted())
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None


def _print(run_id: str, summaries: Sequence[Summary], compared: Sequence[Comparison]) -> None:
    table = Table(caption=f"Run {run_id}; intervals of 95 %, by the bootstrap over tasks.", caption_justify="left")
    passes = [f"pass@{k}" for k in summaries[0].passes]
    for name in ("model", "tasks", "samples", "failed", "reward", *passes, "tokens", "cost"):
        table.add_column(name, justify="left" if name == "model" else "right", overflow="fold")
    for one in summaries:
        numbers = [f"{one.tasks:,}", f"{one.samples:,}", f"{one.failed:,}", _shown(one.reward)]
        cost = "" if one.cost is None else f"{one.cost:.4g}"
        table.add_row(escape(one.model), *numbers, *map(_shown, one.passes.values()), f"{one.tokens:,}", cost)
    console.print(table)
    for pair in compared:
        difference = pair.difference
        console.print(
            f"{pair.model} less {pair.baseline}, on {pair.tasks:,} tasks: {difference.mean:+.4g} "
            f"({difference.low:+.4g} to {difference.high:+.4g}), p = {pair.probability:.3g}",
            markup=False,
        )


def _shown(estimate: Estimate) -> str:
    return f"{estimate.mean:.4g} ({estimate.low:.3g}..{estimate.high:.3g})"


def sampling_of(text: str) -> dict[str, Any]:
    """Sampling parameters of an option.

    Raises:
        SettingsError: it is no JSON object.
    """
    with suppress(ValueError):
        value: Any = json.loads(text)
        if isinstance(value, dict):
            return value
    raise SettingsError(f"--sampling is {text!r:.100}, no JSON object.", next_step='For example {"temperature": 0.7}.')
