"""``Trainer.fit_v0``: an agent for a server of the first protocol."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

from lightstream.producers import LitAgent, OtelTracer
from lightstream.store_views.stores.http import AgentLightningClient
from lightstream.stream_processors.adapters import TracerTraceToTriplet

from ..runner import LegacyAgentRunner

__all__ = ["client_of", "run_legacy"]

logger = logging.getLogger(__name__)


def client_of(server: Any) -> AgentLightningClient | None:
    """The client of a URL, or the client itself; ``None`` where it is neither (tasks)."""
    if isinstance(server, str):
        if not server.startswith(("http://", "https://")):
            raise ValueError(f"{server!r} is not the URL of a server: http://…")
        return AgentLightningClient(server)
    return server if isinstance(server, AgentLightningClient) else None


def run_legacy(
    agent: LitAgent[Any],
    client: AgentLightningClient,
    tracer: OtelTracer,
    adapter: TracerTraceToTriplet,
    *,
    n_runners: int,
    tasks_max: int | None,
) -> None:
    """Run the tasks of ``client`` by ``n_runners`` Runners, each in a thread and up to ``tasks_max`` of them.

    An error in one stops the others after their current task. Ctrl-C abandons them, with the process.
    """
    stop = threading.Event()
    failures: list[Exception] = []

    def work(worker_id: int) -> None:
        runner = LegacyAgentRunner(agent, client, tracer, adapter, worker_id, tasks_max)
        if agent.is_async():
            asyncio.run(runner.iter_async(event=stop))
        else:
            runner.iter(event=stop)

    def work_beside(worker_id: int) -> None:
        try:
            work(worker_id)
        except Exception as error:  # raised in the caller's thread at the end
            logger.exception("worker %d ended.", worker_id)
            failures.append(error)
            stop.set()

    beside = [threading.Thread(target=work_beside, args=(number,), daemon=True) for number in range(1, n_runners)]
    for thread in beside:
        thread.start()
    try:
        work(0)
    except BaseException:
        stop.set()
        raise
    for thread in beside:
        thread.join()
    if failures:
        raise failures[0]
