"""The agent: the model writes a query, reads the document that the index finds, and answers the customer.

The right number of days counts 1.
"""

from __future__ import annotations

from examples.chat import Message, chat
from lightstream.producers import LLM, rollout

from .documents import TOPIC_OF, days_in, search

__all__ = ["answer", "asked", "found"]


def asked(question: str) -> list[Message]:
    """Return the messages that a conversation begins with."""
    return [{"role": "user", "content": question}]


def found(query: str) -> list[Message]:
    """Return the messages that follow a query."""
    return [{"role": "assistant", "content": query}, {"role": "user", "content": search(query)}]


@rollout
async def answer(task: str, llm: LLM) -> float:
    """One question; returns its reward."""
    messages = asked(task)
    messages += found(await chat(llm, messages))
    return float(await chat(llm, messages) == days_in(search(TOPIC_OF[task])))
