"""The fast task: the model is asked to say a digit, and gets 1 when its answer begins with it."""

from __future__ import annotations

from functools import cache
from typing import TypedDict

from openai import AsyncOpenAI

from lightstream.producers import rollout
from lightstream.schemas.types import LLM, AttemptedRollout


class DigitTask(TypedDict):
    """Which digit to say."""

    digit: int


def digit_tasks(count: int) -> list[DigitTask]:
    """All digits in turn."""
    return [DigitTask(digit=number % 10) for number in range(count)]


@cache
def _client() -> AsyncOpenAI:
    return AsyncOpenAI(base_url="http://localhost", api_key="none", max_retries=2)


@rollout
async def say_digit(task: DigitTask, llm: LLM, rollout: AttemptedRollout) -> float:
    """One call, one reward."""
    client = _client().with_options(base_url=llm.get_base_url(rollout.rollout_id, rollout.attempt.attempt_id))
    completion = await client.chat.completions.create(
        model=llm.model,
        messages=[{"role": "user", "content": f"say {task['digit']}"}],
        **llm.sampling_parameters,
    )
    return float((completion.choices[0].message.content or "").startswith(str(task["digit"])))
