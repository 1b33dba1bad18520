"""The agent: the model calls a tool, by the OpenAI SDK's ``tools``, and then says what the tool said.

A task asks how many of a ware there are for sale. The tool counts a ware on one of four shelves; from which shelf each
ware is sold, the model has to find out, and that the tool's number is the answer. The right shelf and an answer that is
the tool's count 0.5 each.
"""

from __future__ import annotations

import json
import random
from typing import Any, TypedDict

from openai import AsyncOpenAI, DefaultAioHttpClient

from lightstream.producers import LLM, AttemptedRollout, rollout

__all__ = ["COUNTS", "SHELF_OF", "SHELVES", "TOOLS", "Task", "count_ware", "question_of", "sample_tasks"]

SHELVES = "ABCD"
SHELF_OF = {
    "apples": "A",
    "pears": "A",
    "bread": "B",
    "cakes": "B",
    "milk": "C",
    "cheese": "C",
    "soap": "D",
    "towels": "D",
}
COUNTS = "0123456789"

# With a description, though nobody reads it: without one, vLLM shows the chat template one that is null.
TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "count",
            "description": "count a ware on a shelf",
            "parameters": {
                "type": "object",
                "properties": {"ware": {"type": "string"}, "shelf": {"enum": list(SHELVES)}},
            },
        },
    }
]


class Task(TypedDict):
    """A ware to count, and how many of it each shelf has."""

    ware: str
    stock: dict[str, str]


def sample_tasks(count: int, seed: int) -> list[Task]:
    """Tasks with counts of their own."""
    chance = random.Random(seed)
    return [
        Task(
            ware=chance.choice(list(SHELF_OF)),
            stock=dict(zip(SHELVES, chance.sample(COUNTS, len(SHELVES)), strict=True)),
        )
        for _ in range(count)
    ]


def question_of(task: Task) -> dict[str, Any]:
    """The message that a conversation begins with."""
    return {"role": "user", "content": f"How many {task['ware']}?"}


def _count(task: Task, arguments: str) -> str | None:
    """The tool; ``None`` if it cannot be called so."""
    try:
        given = json.loads(arguments)
        return task["stock"][given["shelf"]] if given["ware"] == task["ware"] else None
    except (ValueError, KeyError, TypeError):
        return None


_CLIENT = AsyncOpenAI(base_url="http://localhost", api_key="none", max_retries=0, http_client=DefaultAioHttpClient())
"""One connection pool per process; each rollout has an address of its own."""


@rollout
async def count_ware(task: Task, llm: LLM, rollout: AttemptedRollout) -> float:
    """One task; returns its reward."""
    client = _CLIENT.with_options(base_url=llm.get_base_url(rollout.rollout_id, rollout.attempt.attempt_id))
    messages: list[Any] = [question_of(task)]

    async def ask() -> Any:
        completion = await client.chat.completions.create(
            model=llm.model,
            messages=messages,
            tools=TOOLS,  # type: ignore[arg-type]  # plain dicts are what the SDK takes
            **llm.sampling_parameters,
        )
        return completion.choices[0].message

    message = await ask()
    call = message.tool_calls[0] if message.tool_calls else None
    counted = _count(task, call.function.arguments) if call is not None else None
    if call is None or counted is None:
        return 0.0
    messages += [message, {"role": "tool", "tool_call_id": call.id, "content": counted}]
    answer = (await ask()).content or ""
    is_right_shelf = counted == task["stock"][SHELF_OF[task["ware"]]]
    return 0.5 * is_right_shelf + 0.5 * (answer.strip() == counted)
