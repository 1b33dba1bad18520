"""A call of the model that a rollout is given."""

from __future__ import annotations

from openai import AsyncOpenAI, DefaultAioHttpClient

from lightstream.producers import LLM

__all__ = ["Message", "chat"]

Message = dict[str, str]
"""``role`` and ``content``."""

_CLIENT = AsyncOpenAI(base_url="http://localhost", api_key="none", max_retries=2, http_client=DefaultAioHttpClient())
"""One connection pool per process; each rollout has an address of its own."""


async def chat(llm: LLM, messages: list[Message]) -> str:
    """Ask the model for its next message; any OpenAI client would do."""
    completion = await _CLIENT.with_options(base_url=llm.endpoint).chat.completions.create(
        model=llm.model,
        messages=messages,  # type: ignore[arg-type]  # plain dicts are what the SDK takes
        **llm.sampling_parameters,
    )
    return completion.choices[0].message.content or ""
