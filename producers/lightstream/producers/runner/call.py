"""Calls an agent and always comes back with an outcome, whatever the agent does."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
from collections.abc import Callable, Coroutine
from typing import Any

from lightstream.schemas.types import AttemptedRollout, NamedResources

from ..agent import LitAgent
from .outcome import Outcome

__all__ = ["call_agent"]

logger = logging.getLogger(__name__)

CANCEL_GRACE_S = 5.0
"""How long a cancelled agent may clean up before it is left to itself."""


async def call_agent(
    agent: LitAgent[Any], rollout: AttemptedRollout, resources: NamedResources, timeout_s: float | None
) -> Outcome:
    """Run one attempt.

    An asynchronous agent is cancelled at the deadline; a synchronous one cannot be stopped, so it is left behind in
    its (daemon) thread. ``SystemExit``, ``KeyboardInterrupt`` and ``CancelledError`` raised by the agent are failures
    of this attempt and of nothing else. If the caller is cancelled, so is the agent.
    """
    training = rollout.mode == "train"
    if agent.is_async():
        method = agent.training_rollout_async if training else agent.validation_rollout_async
        running: asyncio.Future[Outcome] = asyncio.create_task(_guarded(method(rollout.input, resources, rollout)))
    else:
        call = agent.training_rollout if training else agent.validation_rollout
        running = _in_thread(lambda: call(rollout.input, resources, rollout), rollout.attempt.attempt_id)
    try:
        await asyncio.wait({running}, timeout=timeout_s)
    except asyncio.CancelledError:
        await _stop(running)
        raise
    if running.done():
        return running.result()
    await _stop(running)
    return Outcome.of_timeout(timeout_s or 0.0)


async def _guarded(coroutine: Coroutine[Any, Any, Any]) -> Outcome:
    try:
        return Outcome(await coroutine)
    except BaseException as error:  # noqa: BLE001  # recorded as the attempt's failure; the Runner must outlive it
        return Outcome.of_error(error)


def _in_thread(call: Callable[[], Any], attempt_id: str) -> asyncio.Future[Outcome]:
    """Run ``call`` in a daemon thread of its own, in a copy of this context.

    Not in a pool: an agent that hangs would hold a worker for ever, and the interpreter's exit waits for pools.
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
        except BaseException as error:  # noqa: BLE001  # recorded as the attempt's failure, SystemExit included
            outcome = Outcome.of_error(error)
        try:
            loop.call_soon_threadsafe(deliver, outcome)
        except RuntimeError:  # the loop is closed: the Runner ended while this agent was left behind
            logger.warning("attempt %s returned after its Runner had ended.", attempt_id)

    threading.Thread(target=run, name=f"rollout-{attempt_id}", daemon=True).start()
    return future


async def _stop(running: asyncio.Future[Outcome]) -> None:
    running.cancel()
    _, pending = await asyncio.wait({running}, timeout=CANCEL_GRACE_S)
    if pending:
        logger.warning("an agent went on after it was cancelled; it is left to itself.")
