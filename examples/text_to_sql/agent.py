"""The agent: the model writes a query; where the database does not take it, the model is told so, and tries again.

The right value at once counts 1, at the second try 0.5.
"""

from __future__ import annotations

from examples.chat import Message, chat
from lightstream.producers import LLM, rollout

from .database import QueryError, SqlTask, ask

__all__ = ["REFUSED", "answer", "asked", "refused"]

REFUSED = "The database has no such column there. Again."
REWARDS = (1.0, 0.5)
"""Of the right value at the first and at the second try."""


def asked(question: str) -> list[Message]:
    """Return the messages that a conversation begins with."""
    return [{"role": "user", "content": question}]


def refused(query: str) -> list[Message]:
    """Return the messages that follow a query which the database does not take."""
    return [{"role": "assistant", "content": query}, {"role": "user", "content": REFUSED}]


@rollout
async def answer(task: SqlTask, llm: LLM) -> float:
    """One question; returns its reward."""
    messages = asked(task["question"])
    for reward in REWARDS:
        query = await chat(llm, messages)
        try:
            found = ask(task["database"], query)
        except QueryError:
            messages += refused(query)
            continue
        return reward if found == ask(task["database"], task["query"]) else 0.0
    return 0.0
