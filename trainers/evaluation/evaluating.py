"""An evaluation: an agent on a set of tasks, with one or several models. The log has all of its state."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lightstream.producers import LitAgent, Runner
from lightstream.producers.runner import Hook
from lightstream.runtime.http.attempt_keys import attempt_key, attempt_secret
from lightstream.runtime.services import discover
from lightstream.schemas.errors import ServiceUnavailableError, SettingsError, StoppedError
from lightstream.schemas.types import (
    AttemptedRollout,
    EnqueueRolloutRequest,
    NamedResources,
    ProxyLLM,
    Rollout,
    RolloutConfig,
)
from lightstream.store_views.client import ViewClient
from lightstream.store_views.queries import named_query

from .statistics import Sample

if TYPE_CHECKING:
    from lightstream.runtime.settings import Settings

REQUESTS_AT_ONCE = 500
LOST_ATTEMPTS_MAX = 5
"""Of one answer: an evaluation that is killed leaves attempts behind, which are made again."""
DIGEST_CHARACTERS = 12
ASSEMBLED_TIMEOUT_S = 60.0
LOOK_S = 0.5
"""Between two looks for trajectories, and at whether to stop."""


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


class _Ended(Hook):
    """Calls a function as attempts end."""

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call

    async def on_rollout_end(self, *, rollout: AttemptedRollout, **_: Any) -> None:
        self._call()


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The tasks, each answered ``samples`` times by each model.

    An evaluation of the same name, tasks and models is the same one: asking again goes on with it, and more samples or
    models add to it.

    Attributes:
        run_id: its name; rollouts have it as their run, and the mode ``val``.
        tasks: JSON values.
        models: names that the proxy serves.
        sampling: parameters of each call.
        metadata: of the rollouts of each task; empty, or one for each.

    Raises:
        SettingsError: there is no task or model, or a model twice.
    """

    run_id: str
    tasks: Sequence[Any]
    models: Sequence[str]
    samples: int = 1
    sampling: Mapping[str, Any] = field(default_factory=dict[str, Any])
    metadata: Sequence[Mapping[str, Any]] = ()

    def __post_init__(self) -> None:
        if not self.tasks:
            raise SettingsError(f"the evaluation {self.run_id} has no tasks.")
        if not self.models or len(set(self.models)) < len(self.models):
            raise SettingsError(
                "no model is named, or one twice.", next_step="Name each with --model, the baseline first."
            )

    @property
    def digest(self) -> str:
        """Digest of the tasks and their metadata."""
        tasks = list(self.tasks)
        return _digest(json.dumps([tasks, list(self.metadata)] if self.metadata else tasks, sort_keys=True))

    def requests(self) -> list[EnqueueRolloutRequest]:
        """One rollout for each model, task and sample. Its id follows from these."""
        digest = self.digest
        return [
            EnqueueRolloutRequest(
                input=task,
                mode="val",
                run_id=self.run_id,
                config=RolloutConfig(max_attempts=LOST_ATTEMPTS_MAX + 1, retry_condition=["unresponsive"]),
                rollout_id=f"{self.run_id}-{digest}-{_digest(model)}-{number}-{sample}",
                group_id=f"{self.run_id}-{digest}-{number}",
                metadata={
                    **(self.metadata[number] if self.metadata else {}),
                    "evaluation": {"model": model, "task": number, "sample": sample, "tasks": digest},
                },
            )
            for sample in range(self.samples)
            for number, task in enumerate(self.tasks)
            for model in self.models
        ]

    async def run(
        self,
        settings: Settings,
        agent: LitAgent[Any],
        *,
        concurrency: int = 16,
        on_ended: Callable[[int], None] = lambda ended: None,
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        """Run the rollouts that have not ended yet. Cancelled or stopped, it ends the attempts under way first.

        Args:
            on_ended: called with the number of rollouts that have newly ended; first with those of earlier runs.
            stop: asked each 0.5 s.

        Raises:
            StoppedError: ``stop`` said so.
            ServiceUnavailableError: Kafka or the proxy does not answer.
        """
        from lightstream.store_views.stores import KafkaLightningStore

        proxy = (settings.proxy_url or discover(settings, "proxy").address).rstrip("/")
        asks_for_key = settings.proxy_token is not None or settings.tokens_file is not None
        secret = attempt_secret(settings) if asks_for_key else None
        of_model = OfModel(agent, f"{proxy}/v1", self.sampling, secret)
        requests = self.requests()
        ids = [request.rollout_id or "" for request in requests]
        store = KafkaLightningStore(settings)
        await store.start()
        try:
            for start in range(0, len(requests), REQUESTS_AT_ONCE):
                await store.enqueue_many_rollouts(requests[start : start + REQUESTS_AT_ONCE])
            on_ended(len(await store.wait_for_rollouts(rollout_ids=ids, timeout=0.0)))
            hooks = [_Ended(lambda: on_ended(1))]
            runner = Runner(
                store, of_model, run_id=self.run_id, settings=settings, n_concurrent=concurrency, hooks=hooks
            )
            running = asyncio.create_task(runner.run())
            waiting = asyncio.create_task(store.wait_for_rollouts(rollout_ids=ids))
            try:
                while not (running.done() or waiting.done()):
                    check_not_stopped(stop)
                    await asyncio.wait([running, waiting], timeout=LOOK_S, return_when=asyncio.FIRST_COMPLETED)
            finally:
                waiting.cancel()
                runner.stop()
                await running
        finally:
            await store.close()

    def results(self, settings: Settings, stop: Callable[[], bool] = lambda: False) -> dict[str, list[Sample]]:
        """Each model's samples, once the worker has assembled all trajectories. Blocks.

        Raises:
            StoppedError: ``stop`` said so while it waited.
            ServiceUnavailableError: the view does not answer, or the worker does not assemble.
        """
        view = ViewClient(settings)
        sql, values = named_query("evaluation").statement({"run": self.run_id})
        ids = {request.rollout_id for request in self.requests()}
        deadline = time.monotonic() + ASSEMBLED_TIMEOUT_S
        while True:
            rows = [row for row in view.query(sql, "now", params=values).dicts() if row["rollout_id"] in ids]
            missing = sum(not row["is_assembled"] for row in rows) + len(ids) - len(rows)
            if not missing:
                break
            check_not_stopped(stop)
            if time.monotonic() > deadline:
                raise ServiceUnavailableError(
                    f"{missing} of {len(ids)} rollouts are not assembled yet.",
                    next_step="Is the worker running (`lightstream status`)? Then ask again: nothing is run twice.",
                )
            time.sleep(LOOK_S)
        found: dict[str, list[Sample]] = {model: [] for model in self.models}
        for row in rows:
            found[row["model"]].append(_sample(row))
        return found


def check_not_stopped(stop: Callable[[], bool]) -> None:
    """Raise :class:`StoppedError` if ``stop`` says so."""
    if stop():
        raise StoppedError("the evaluation was stopped.", next_step="Ask again: nothing is run twice.")


def _sample(row: Mapping[str, Any]) -> Sample:
    return Sample(
        model=row["model"],
        task=row["task"],
        reward=row["reward"] or 0.0,
        failed=row["reward"] is None,
        tokens=(row["prompt_tokens"] or 0) + (row["response_tokens"] or 0),
        cost=row["cost"],
        response_tokens=row["response_tokens"] or 0,
        seconds=row["seconds"] or 0.0,
        tool_errors=row["tool_errors"],
        refusals=row["refusals"],
        versions=tuple(row["policy_versions"] or ()),
    )


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:DIGEST_CHARACTERS]
