"""What one Runner process does. Imported afresh in the child: keep it light."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
from multiprocessing import parent_process
from multiprocessing.connection import wait
from typing import Any

from lightstream.schemas.garbage import spare_what_is_there
from lightstream.schemas.settings import Settings

__all__ = ["run_runner"]

DRAIN_TIMEOUT_S = 15.0
"""How long attempts may finish when the trainer stops or is gone. Ending them in order costs less than their
deadlines: an attempt that is cut off counts as unresponsive only a minute later."""

EXIT_MARGIN_S = 5.0


def run_runner(environment: dict[str, str], agent: Any, n_concurrent: int, worker_id: str) -> None:
    """Run an agent until SIGTERM, or until the process that started this one has ended, however it did.

    Args:
        environment: the trainer's settings, as ``Settings.to_environment`` gives them.
        agent: a LitAgent.
        n_concurrent: attempts at once.
        worker_id: name in the store.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the trainer too, which stops its Runners in order
    os.environ.update(environment)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    threading.Thread(target=_watch_parent, name="lightstream-parent-watch", daemon=True).start()
    asyncio.run(_run(agent, n_concurrent, worker_id))


async def _run(agent: Any, n_concurrent: int, worker_id: str) -> None:
    from lightstream.producers import Runner
    from lightstream.store_views.stores import KafkaLightningStore

    settings = Settings.load()
    store = KafkaLightningStore(settings)
    await store.start()
    try:
        runner = Runner(
            store,
            agent,
            settings=settings,
            n_concurrent=n_concurrent,
            worker_id=worker_id,
            drain_timeout_s=DRAIN_TIMEOUT_S,
        )
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, runner.stop)
        spare_what_is_there()
        await runner.run()
    finally:
        await store.close()


def _watch_parent() -> None:
    parent = parent_process()
    if parent is None:
        return
    wait([parent.sentinel])
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait(DRAIN_TIMEOUT_S + EXIT_MARGIN_S)
    os._exit(1)  # something hangs: nobody is left to end this process
