"""Runs an agent on tasks, against a store that is a list and a real Kafka."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from opentelemetry import trace

from lightstream.producers import LitAgent, OtelTracer, Runner
from lightstream.runtime.settings import Settings
from lightstream.schemas.records import SpanRecord
from lightstream.schemas.types import (
    EnqueueRolloutRequest,
    RolloutConfig,
)
from tests.producers.support import ListStore

SpansInLog = Callable[[], list[SpanRecord]]


def run(
    store: ListStore,
    agent: LitAgent[Any],
    settings: Settings,
    tracer: OtelTracer,
    tasks: list[Any],
    n_concurrent: int = 4,
    config: RolloutConfig | None = None,
    configs: Mapping[Any, RolloutConfig] | None = None,
    **options: Any,
) -> int:
    """``configs`` are of single tasks, ``config`` of all others."""

    async def main() -> int:
        requests = [
            EnqueueRolloutRequest(
                input=task, rollout_id=f"r{i}", config=(configs or {}).get(task) or config or RolloutConfig()
            )
            for i, task in enumerate(tasks)
        ]
        await store.enqueue_many_rollouts(requests)
        runner = Runner(
            store,
            agent,
            settings=settings,
            tracer=tracer,
            n_concurrent=n_concurrent,
            **options,
        )
        return await runner.run(max_rollouts=len(tasks))

    return asyncio.run(main())


def leaf(library: trace.Tracer, task: int) -> None:
    """A span without children, as a library called by the agent makes it."""
    with library.start_as_current_span(f"leaf-{task}"):
        pass


def rewards(spans: list[SpanRecord]) -> dict[str | None, float]:
    key = "agentlightning.reward.0.value"
    return {span.rollout_id: span.attributes[key] for span in spans if key in span.attributes}
