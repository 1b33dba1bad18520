"""The agent: a plain function that uses the OpenAI SDK.

It shows the model a task; the model answers one letter, the tool of that letter runs, and the data set's own verifier
scores what the tool returns. Nothing here knows about Kafka or training.
"""

from __future__ import annotations

from openai import AsyncOpenAI, DefaultAioHttpClient

from lightstream.producers import LLM, AttemptedRollout, rollout

from .tasks import Task, score
from .tools import use_tool

__all__ = ["prompt_of", "route"]


def prompt_of(task: Task) -> list[dict[str, str]]:
    """The messages that the model sees."""
    return [{"role": "user", "content": task["prompt"]}]


_CLIENT = AsyncOpenAI(base_url="http://localhost", api_key="none", max_retries=0, http_client=DefaultAioHttpClient())
"""One connection pool per process; each rollout has an address of its own. The SDK's default client takes far more of
the processor for the same calls."""


@rollout
async def route(task: Task, llm: LLM, rollout: AttemptedRollout) -> float:
    """One task; returns its reward."""
    client = _CLIENT.with_options(base_url=llm.get_base_url(rollout.rollout_id, rollout.attempt.attempt_id))
    completion = await client.chat.completions.create(
        model=llm.model,
        messages=prompt_of(task),  # type: ignore[arg-type]  # plain dicts are what the SDK takes
        **llm.sampling_parameters,
    )
    letter = (completion.choices[0].message.content or "").strip()[:1]
    return score(task, use_tool(letter, task["question"]))
