"""Calls an agent and always comes back with an outcome, whatever the agent does."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from lightstream.schemas.types import AttemptedRollout, NamedResources

from ..agent import LitAgent
from .daemon_thread import call_in_thread
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
        running = call_in_thread(
            lambda: call(rollout.input, resources, rollout), f"rollout-{rollout.attempt.attempt_id}"
        )
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


async def _stop(running: asyncio.Future[Outcome]) -> None:
    running.cancel()
    _, pending = await asyncio.wait({running}, timeout=CANCEL_GRACE_S)
    if pending:
        logger.warning("an agent kept running after it was cancelled; it is abandoned.")
