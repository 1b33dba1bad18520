"""``lightstream eval``: an agent on a set of tasks, with one or several models, and the results of each."""

from __future__ import annotations

import asyncio
import hashlib
import json
import signal
import time
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from lightstream.producers import LitAgent
from lightstream.producers.runner import Hook
from lightstream.runtime.http.attempt_keys import attempt_key, attempt_secret
from lightstream.runtime.services import discover
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import ServiceUnavailableError, SettingsError
from lightstream.schemas.types import (
    AttemptedRollout,
    EnqueueRolloutRequest,
    NamedResources,
    ProxyLLM,
    Rollout,
    RolloutConfig,
)
from lightstream.store_views.evaluation import Comparison, Estimate, Sample, Summary, comparison, summary

from .agents import load_agent, name_of_file
from .load import needs
from .train import read_tasks

if TYPE_CHECKING:
    from lightstream.store_views.client import ViewClient
    from lightstream.store_views.queries.named import NamedQuery

REQUESTS_AT_ONCE = 500
LOST_ATTEMPTS_MAX = 5
"""Of one answer: an evaluation that is killed leaves attempts behind, which are made again."""
DIGEST_CHARACTERS = 12
ASSEMBLED_TIMEOUT_S = 60.0
LOOK_S = 0.5

console = Console(highlight=False)
progress_console = Console(stderr=True, highlight=False)


class OfModel(LitAgent[Any]):
    """An agent whose calls go to the model that the rollout's metadata name, whatever resources there are.

    Resources are not published for it: other runs may take the latest ones.
    """

    def __init__(self, agent: LitAgent[Any], endpoint: str, sampling: Mapping[str, Any], secret: bytes | None) -> None:
        super().__init__(trained_agents=agent.trained_agents)
        self._agent = agent
        self._endpoint = endpoint
        self._sampling = dict(sampling)
        self._secret = secret

    def is_async(self) -> bool:
        return self._agent.is_async()

    def validation_rollout(self, task: Any, resources: NamedResources, rollout: Rollout) -> Any:
        return self._agent.validation_rollout(task, self._resources(resources, rollout), rollout)

    async def validation_rollout_async(self, task: Any, resources: NamedResources, rollout: Rollout) -> Any:
        return await self._agent.validation_rollout_async(task, self._resources(resources, rollout), rollout)

    def _resources(self, resources: NamedResources, rollout: Rollout) -> NamedResources:
        model = (rollout.metadata or {})["evaluation"]["model"]
        key = None
        if self._secret is not None and isinstance(rollout, AttemptedRollout):
            key = attempt_key(self._secret, rollout.rollout_id, rollout.attempt.attempt_id)
        llm = ProxyLLM(endpoint=self._endpoint, model=model, api_key=key, sampling_parameters=self._sampling)
        names = [name for name, resource in resources.items() if isinstance(resource, ProxyLLM)] or ["main_llm"]
        return {name: resource for name, resource in resources.items() if name not in names} | {names[0]: llm}


def run_evaluation(
    settings: Settings,
    agent: LitAgent[Any] | str,
    tasks_file: Path,
    models: Sequence[str],
    *,
    name: str | None,
    samples: int,
    passes_from: float,
    sampling: str,
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
        SettingsError: the agent, the file or an option is wrong. Nothing was run.
        ServiceUnavailableError: Kafka, the proxy or the view does not answer.
    """
    with needs("view"):
        from lightstream.store_views.client import ViewClient
        from lightstream.store_views.queries import named_query
    tasks = read_tasks(tasks_file)
    if not models or len(set(models)) < len(models):
        raise SettingsError("no model is named, or one twice.", next_step="Name each with --model, the baseline first.")
    run_id = name or f"eval-{name_of_file(agent)}" if isinstance(agent, str) else name
    if run_id is None:
        raise SettingsError("the evaluation of a command has no name.", next_step="Add --name NAME.")
    loaded = load_agent(agent) if isinstance(agent, str) else agent
    digest = _digest(json.dumps(tasks, sort_keys=True))
    requests = _requests(run_id, tasks, models, samples, digest)
    proxy = (settings.proxy_url or discover(settings, "proxy").address).rstrip("/")
    asks_for_key = settings.proxy_token is not None or settings.tokens_file is not None
    secret = attempt_secret(settings) if asks_for_key else None
    of_model = OfModel(loaded, f"{proxy}/v1", _sampling(sampling), secret)
    asyncio.run(_run(settings, of_model, run_id, requests, concurrency))
    rows = _rows(ViewClient(settings), named_query("evaluation"), run_id, {request.rollout_id for request in requests})
    found: dict[str, list[Sample]] = {model: [] for model in models}
    for row in rows:
        found[row["model"]].append(
            Sample(
                model=row["model"],
                task=row["task"],
                reward=row["reward"] or 0.0,
                failed=row["reward"] is None,
                tokens=(row["prompt_tokens"] or 0) + (row["response_tokens"] or 0),
                cost=row["cost"],
            )
        )
    summaries = [summary(found[model], passes_from=passes_from) for model in models]
    compared = [comparison(found[model], found[models[0]]) for model in models[1:]]
    if as_json:
        models_json = [asdict(one) for one in summaries]
        print(json.dumps({"run": run_id, "models": models_json, "compared": [asdict(one) for one in compared if one]}))
    else:
        _print(run_id, summaries, [one for one in compared if one is not None])
    is_good = at_least is None or all(one.reward.mean >= at_least for one in summaries)
    is_as_good = at_most_worse is None or all(one is not None and one.is_not_worse(at_most_worse) for one in compared)
    return is_good and is_as_good


def _requests(
    run_id: str, tasks: Sequence[Any], models: Sequence[str], samples: int, digest: str
) -> list[EnqueueRolloutRequest]:
    """One rollout for each model, task and sample. Its id follows from these, so asking again asks for nothing new."""
    return [
        EnqueueRolloutRequest(
            input=task,
            mode="val",
            run_id=run_id,
            config=RolloutConfig(max_attempts=LOST_ATTEMPTS_MAX + 1, retry_condition=["unresponsive"]),
            rollout_id=f"{run_id}-{digest}-{_digest(model)}-{number}-{sample}",
            group_id=f"{run_id}-{digest}-{number}",
            metadata={"evaluation": {"model": model, "task": number, "sample": sample, "tasks": digest}},
        )
        for sample in range(samples)
        for number, task in enumerate(tasks)
        for model in models
    ]


async def _run(
    settings: Settings, agent: LitAgent[Any], run_id: str, requests: Sequence[EnqueueRolloutRequest], concurrency: int
) -> None:
    with needs("view"):
        from lightstream.store_views.stores import KafkaLightningStore
    from lightstream.producers import Runner

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    store = KafkaLightningStore(settings)
    await store.start()
    try:
        for start in range(0, len(requests), REQUESTS_AT_ONCE):
            await store.enqueue_many_rollouts(requests[start : start + REQUESTS_AT_ONCE])
        ids = [request.rollout_id or "" for request in requests]
        ended = len(await store.wait_for_rollouts(rollout_ids=ids, timeout=0.0))  # by the same command, earlier
        with Progress(*columns, console=progress_console, transient=True) as progress:
            bar = progress.add_task(run_id, total=len(ids), completed=ended)
            hook = _Advances(lambda: progress.advance(bar))
            runner = Runner(store, agent, run_id=run_id, settings=settings, n_concurrent=concurrency, hooks=[hook])
            for number in (signal.SIGINT, signal.SIGTERM):
                asyncio.get_running_loop().add_signal_handler(number, runner.stop)
            running = asyncio.create_task(runner.run())
            waiting = asyncio.create_task(store.wait_for_rollouts(rollout_ids=ids))
            await asyncio.wait([running, waiting], return_when=asyncio.FIRST_COMPLETED)
            if not waiting.done():
                waiting.cancel()
                raise KeyboardInterrupt
            runner.stop()
            await running
    finally:
        await store.close()


class _Advances(Hook):
    """Moves the bar as attempts end."""

    def __init__(self, advance: Callable[[], None]) -> None:
        self._advance = advance

    async def on_rollout_end(self, *, rollout: AttemptedRollout, **_: Any) -> None:
        self._advance()


def _rows(view: ViewClient, query: NamedQuery, run_id: str, rollout_ids: Container[str | None]) -> list[dict[str, Any]]:
    """The rows of these rollouts, once the worker has assembled their trajectories.

    Raises:
        ServiceUnavailableError: it does not.
    """
    sql, values = query.statement({"run": run_id})
    deadline = time.monotonic() + ASSEMBLED_TIMEOUT_S
    while True:
        rows = [row for row in view.query(sql, "now", params=values).dicts() if row["rollout_id"] in rollout_ids]
        if all(row["is_assembled"] for row in rows):
            return rows
        if time.monotonic() > deadline:
            missing = sum(not row["is_assembled"] for row in rows)
            raise ServiceUnavailableError(
                f"{missing} of {len(rows)} rollouts are not assembled yet.",
                next_step="Is the worker running (`lightstream status`)? Then ask again: nothing is run twice.",
            )
        time.sleep(LOOK_S)


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


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:DIGEST_CHARACTERS]


def _sampling(text: str) -> dict[str, Any]:
    """Sampling parameters of an option.

    Raises:
        SettingsError: it is no JSON object.
    """
    with suppress(ValueError):
        value: Any = json.loads(text)
        if isinstance(value, dict):
            return value
    raise SettingsError(f"--sampling is {text!r:.100}, no JSON object.", next_step='For example {"temperature": 0.7}.')
