"""The agent: the model says which drawer a thing is in, and a tool looks there, which takes its time now and then."""

from __future__ import annotations

import asyncio
import random

from examples.drawers import DRAWER_OF, ThingTask, said_drawer
from lightstream.producers import LLM, AttemptedRollout, rollout

__all__ = ["look_there"]

QUICK_S, SLOW_S = 0.2, 3.0
SLOW_SHARE = 0.02
"""Of the uses of the tool. With 64 rollouts a step, three steps in four have one, and a step that waits for all of its
rollouts waits for that."""


async def _is_in(drawer: str, thing: str, rollout_id: str) -> bool:
    """The tool; how long it takes follows from the rollout's place in its run, so that it is the same in both runs."""
    place = rollout_id.partition("-")[2]
    await asyncio.sleep(SLOW_S if random.Random(place).random() < SLOW_SHARE else QUICK_S)
    return DRAWER_OF[thing] == drawer


@rollout
async def look_there(task: ThingTask, llm: LLM, rollout: AttemptedRollout) -> float:
    """One call and one use of the tool; returns 1 where the thing is there."""
    return float(await _is_in(await said_drawer(task, llm, rollout), task["thing"], rollout.rollout_id))
