"""A blocking call in a thread of its own, awaited."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
from collections.abc import Callable
from typing import Any

from .outcome import Outcome

logger = logging.getLogger(__name__)


def call_in_thread(call: Callable[[], Any], name: str) -> asyncio.Future[Outcome]:
    """Make ``call`` in a daemon thread named ``name``, in a copy of this context; the future never raises.

    Not in a pool: a call that hangs would hold a worker forever, and the interpreter's exit waits for pools.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Outcome] = loop.create_future()
    context = contextvars.copy_context()

    def deliver(outcome: Outcome) -> None:
        if not future.done():
            future.set_result(outcome)

    def run() -> None:
        try:
            outcome = Outcome(context.run(call))
        except BaseException as error:  # noqa: BLE001  # raised to whoever awaits it, SystemExit included
            outcome = Outcome.of_error(error)
        try:
            loop.call_soon_threadsafe(deliver, outcome)
        except RuntimeError:  # the loop is closed: who called ended while this was left behind
            logger.warning("%s returned after its caller had ended.", name)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future
