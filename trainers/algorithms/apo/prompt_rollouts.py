"""Rollouts of tasks with a prompt, for any search on a store. Their names follow from the search."""

from __future__ import annotations

import asyncio
import string
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NotRequired, TypedDict

from lightstream.producers import find_final_reward
from lightstream.schemas.interfaces import LightningStore
from lightstream.schemas.types import EnqueueRolloutRequest, PromptTemplate, Rollout, RolloutMode
from lightstream.stream_processors.adapters import TraceToMessages


class RolloutResult(TypedDict):
    """The outcome of a rollout, in JSON values.

    ``messages`` are the conversations of its calls; ``error`` is the type and message of an agent's error.
    """

    status: str
    error: NotRequired[str | None]
    final_reward: float | None
    spans: list[dict[str, Any]]
    messages: list[Any]


class PromptRollouts:
    """Runs tasks with versions of a prompt. The same request again finds the rollouts that are there.

    Args:
        store: any store with Runners.
        search: name of the search; the rollouts' ``run_id``.
        resource_name: name of the prompt among the agent's resources.
        adapter: turns a rollout's spans into conversations.
        timeout_s: seconds to wait for a batch.
        say: is told of rollouts that do not end in time.
    """

    def __init__(
        self,
        store: LightningStore,
        search: str,
        *,
        resource_name: str,
        adapter: TraceToMessages,
        timeout_s: float,
        say: Callable[[str], None],
    ) -> None:
        self._store = store
        self._search = search
        self._resource_name = resource_name
        self._adapter = adapter
        self._timeout_s = timeout_s
        self._say = say

    async def run(
        self, version: str, prompt: PromptTemplate, tasks: Sequence[Any], mode: RolloutMode, batch: str
    ) -> list[RolloutResult | None]:
        """Run tasks with a prompt and return their outcomes in the order of tasks; ``None`` for one not over in time.

        Args:
            version: of the prompt.
            prompt: the template.
            tasks: inputs of the rollouts.
            mode: of the rollouts.
            batch: names these tasks within the search and version.
        """
        resources_id = f"{self._search}-{version}"
        await self.publish(resources_id, prompt)
        group_id = f"{resources_id}-{batch}"
        requests = [
            EnqueueRolloutRequest(
                input=task,
                mode=mode,
                resources_id=resources_id,
                rollout_id=f"{group_id}-{place}",
                group_id=group_id,
                group_size=len(tasks),
                run_id=self._search,
            )
            for place, task in enumerate(tasks)
        ]
        enqueued = await self._store.enqueue_many_rollouts(requests)
        ids = [rollout.rollout_id for rollout in enqueued]
        ended = await self._store.wait_for_rollouts(rollout_ids=ids, timeout=self._timeout_s)
        if len(ended) < len(tasks):
            self._say(f"{len(tasks) - len(ended)} of {len(tasks)} rollouts of {group_id} are not over in time.")
        results = await asyncio.gather(*map(self._result, ended))
        by_id = {rollout.rollout_id: result for rollout, result in zip(ended, results, strict=True)}
        return [by_id.get(rollout_id) for rollout_id in ids]

    async def publish(self, resources_id: str, prompt: PromptTemplate) -> None:
        """Make a prompt the resources of that id, if it is not already."""
        known = await self._store.get_resources_by_id(resources_id)
        if known is None or known.resources.get(self._resource_name) != prompt:
            await self._store.update_resources(resources_id, {self._resource_name: prompt})

    async def error(self, version: str, batch: str) -> str | None:
        """Return the error of a batch's first rollout, by type and message; ``None`` where it has none."""
        return await self._error(f"{self._search}-{version}-{batch}-0")

    async def _error(self, rollout_id: str) -> str | None:
        attempt = await self._store.get_latest_attempt(rollout_id)
        return (
            None if attempt is None or attempt.error_type is None else f"{attempt.error_type}: {attempt.error_message}"
        )

    async def _result(self, rollout: Rollout) -> RolloutResult:
        spans = list(await self._store.query_spans(rollout.rollout_id, "latest"))
        return RolloutResult(
            status=rollout.status,
            error=await self._error(rollout.rollout_id),
            final_reward=find_final_reward(spans),
            spans=[span.model_dump(mode="json") for span in spans],
            messages=list(self._adapter.adapt(spans)),
        )


def errors_of(result: RolloutResult) -> str:
    """List the errors of a run, a line each. An agent that broke off has perhaps no conversation to read."""
    error = result.get("error")
    errors = [] if error is None else [f"\nError: {error}"]
    for span in result["spans"]:
        status: Mapping[str, Any] = span.get("status") or {}
        if status.get("status_code") == "ERROR" and status.get("description"):
            errors.append(f"\nError in {span.get('name')}: {status['description']}")
    return "".join(errors)


def wrong_placeholders(text: str, template: PromptTemplate) -> str | None:
    """Say why an edited text could not be filled in where the template was; ``None`` if it can."""
    if template.engine != "f-string":
        return None  # these take no harm from a name without a value
    try:
        known = {field for _, field, _, _ in string.Formatter().parse(template.template) if field is not None}
        fields = {field for _, field, _, _ in string.Formatter().parse(text) if field is not None}
    except ValueError as error:  # a bracket alone, say
        return f"it has {error}"
    unknown = ", ".join(f"{{{field}}}" for field in sorted(fields - known))
    return f"it asks for {unknown}, which {template.template[:40]!r}… does not" if unknown else None
