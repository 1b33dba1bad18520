"""The agent: it is asked for a digit, and gets 1 where the answer begins with it."""

from __future__ import annotations

from typing import TypedDict

from openai import AsyncOpenAI, DefaultAioHttpClient

from lightstream.producers import LLM, AttemptedRollout, rollout

__all__ = ["DIGITS", "DigitTask", "question_of", "say_digit"]

DIGITS = "0123456789"

_CLIENT = AsyncOpenAI(base_url="http://localhost", api_key="none", max_retries=2, http_client=DefaultAioHttpClient())
"""One connection pool per process; each rollout has an address of its own."""


class DigitTask(TypedDict):
    """Which digit to say."""

    digit: str


def question_of(task: DigitTask) -> str:
    """What the user says."""
    return f"say {task['digit']}"


@rollout
async def say_digit(task: DigitTask, llm: LLM, rollout: AttemptedRollout) -> float:
    """One call; returns its reward."""
    client = _CLIENT.with_options(base_url=llm.get_base_url(rollout.rollout_id, rollout.attempt.attempt_id))
    completion = await client.chat.completions.create(
        model=llm.model, messages=[{"role": "user", "content": question_of(task)}], **llm.sampling_parameters
    )
    return float((completion.choices[0].message.content or "").startswith(task["digit"]))
