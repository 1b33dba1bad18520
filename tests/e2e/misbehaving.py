"""An agent that does what its task says: at the first attempt something bad, at the second what it should."""

from __future__ import annotations

import asyncio
import math
import sys

from openai import AsyncOpenAI

from lightstream.producers import rollout
from lightstream.schemas.types import LLM, AttemptedRollout

LARGE_PROMPT_CHARACTERS = 20 * 1024 * 1024


@rollout
async def misbehave(task: str, llm: LLM, rollout: AttemptedRollout) -> float:
    """One call, which tells the server the task and the attempt; then whatever the task is."""
    first = rollout.attempt.sequence_id == 1
    prompt = f"{task} {rollout.attempt.sequence_id}"
    if task == "large prompt":
        prompt += "x" * LARGE_PROMPT_CHARACTERS
    base_url = llm.get_base_url(rollout.rollout_id, rollout.attempt.attempt_id)
    async with AsyncOpenAI(base_url=base_url, api_key="none", max_retries=0) as client:
        await client.chat.completions.create(model=llm.model, messages=[{"role": "user", "content": prompt}])
    if task == "raises" and first:
        raise KeyError("no such tool")
    if task == "exits" and first:
        sys.exit(3)
    if task == "is cancelled" and first:
        raise asyncio.CancelledError
    if task == "never ends" and first:
        await asyncio.Event().wait()
    return math.nan if task == "NaN reward" else 1.0
