"""A Runner process, started by the trainer.

Its standard input brings the agent, and its end says that the trainer is gone, however it went.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lightstream.runtime.gc_tuning import tune_gc
from lightstream.runtime.logs import log_to_stderr, logged_ids
from lightstream.runtime.settings import Settings

if TYPE_CHECKING:
    from lightstream.producers import Hook, OtelTracer

DRAIN_TIMEOUT_S = 15.0
"""Time in which attempts may finish when the trainer stops or is gone. Ending them in order costs less than their
deadlines: an attempt that is cut off counts as unresponsive only a minute later."""

EXIT_MARGIN_S = 5.0


@dataclass(frozen=True, slots=True)
class RunnerJob:
    """The work of a Runner process.

    Attributes:
        search_path: where the trainer finds its modules.
        agent: a LitAgent, the hooks around its attempts, and what makes its tracer, as cloudpickle packs them: what is
            defined in the program itself, or in a notebook, is in it.
        n_concurrent: attempts at once.
        worker_id: name in the store.
        run_id: run whose rollouts it takes.
    """

    search_path: list[str]
    agent: bytes
    n_concurrent: int
    worker_id: str
    run_id: str


def main() -> None:
    """Run the agent that standard input brings until SIGTERM, or until the input ends."""
    import cloudpickle  # type: ignore[import-untyped]  # it has no types

    from lightstream.producers.runner.metrics import served_metrics

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the trainer too, which stops its Runners in order
    settings = Settings.load()
    log_to_stderr(settings, logging.WARNING)
    job: RunnerJob = cloudpickle.load(sys.stdin.buffer)
    sys.path[:] = job.search_path
    agent, hooks, make_tracer = cloudpickle.loads(job.agent)
    threading.Thread(target=_watch, args=(sys.stdin.fileno(),), name="lightstream-parent-watch", daemon=True).start()
    with logged_ids(run_id=job.run_id), served_metrics(settings) as counting:
        asyncio.run(_run(settings, job, agent, [*hooks, *counting], make_tracer))
    # What the agent holds to the end is collected with the rest: of what tune_gc() exempts, DuckDB would print a list.
    gc.unfreeze()
    logging.getLogger("asyncio").disabled = True  # clients of models would be called "unclosed"


async def _run(
    settings: Settings,
    job: RunnerJob,
    agent: Any,
    hooks: Sequence[Hook],
    make_tracer: Callable[[], OtelTracer] | None,
) -> None:
    from lightstream.producers import Runner
    from lightstream.store_views.stores import KafkaLightningStore

    store = KafkaLightningStore(settings)
    await store.start()
    tracer = None if make_tracer is None else make_tracer()
    try:
        runner = Runner(
            store,
            agent,
            run_id=job.run_id,
            settings=settings,
            n_concurrent=job.n_concurrent,
            worker_id=job.worker_id,
            tracer=tracer,
            hooks=hooks,
            drain_timeout_s=DRAIN_TIMEOUT_S,
        )
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, runner.stop)
        tune_gc()
        await runner.run()
    finally:
        if tracer is not None:
            await asyncio.to_thread(tracer.close)
        await store.close()


def _watch(parent: int) -> None:
    os.read(parent, 1)  # returns when nobody can write any more; a buffered reader would be locked at exit
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait(DRAIN_TIMEOUT_S + EXIT_MARGIN_S)
    os._exit(1)  # something hangs: nobody is left to end this process
