"""The agent: somebody thinks of an animal; the model asks two questions, and names the animal.

The right animal counts 1. What to ask, so that the answers leave one animal only, the model has to find out.
"""

from __future__ import annotations

from examples.chat import Message, chat
from lightstream.producers import LLM, rollout

__all__ = ["ANIMALS", "QUESTIONS", "TURNS", "answered", "begin", "play"]

QUESTIONS = ("flies?", "swims?", "barks?")
ANIMALS = {
    "eagle": ("flies?",),
    "trout": ("swims?",),
    "duck": ("flies?", "swims?"),
    "mouse": (),
}
"""Animal -> the questions that are answered by yes. None of them barks."""

TURNS = 2
"""Questions before the animal has to be named: enough, if neither is wasted."""


def begin() -> list[Message]:
    """Return the messages that a game begins with: the same, whatever the animal."""
    return [{"role": "user", "content": "guess"}]


def answered(animal: str, question: str) -> list[Message]:
    """Return the messages that follow a question; anything else is answered by no."""
    answer = "yes" if question in ANIMALS[animal] else "no"
    return [{"role": "assistant", "content": question}, {"role": "user", "content": f"{question} {answer}"}]


@rollout
async def play(task: str, llm: LLM) -> float:
    """One game; returns its reward."""
    messages = begin()
    for _ in range(TURNS):
        messages += answered(task, await chat(llm, messages))
    return float(await chat(llm, messages) == task)
