"""A debate: two agents are asked the same question, and one is to speak for it, the other against.

Their prompts are the same to the letter, so no single policy can please both: each calls the model of its own.
"""

from __future__ import annotations

from typing import TypedDict

from examples.chat import chat
from lightstream.producers import AttemptedRollout, NamedResources, ProxyLLM, emit_reward, rollout

__all__ = ["SIDES", "TASKS", "TOPICS", "WORDS", "Task", "debate", "prompt_of"]

TOPICS = ("tea", "rain", "trains", "homework", "onions", "Mondays")
WORDS = ("yes", "no", "maybe", "never", "always", "perhaps")
SIDES = {"advocate": ("yes", "always"), "opponent": ("no", "never")}
"""Agent, which is also the name of its policy, to the words that are of its side."""


class Task(TypedDict):
    """A topic to disagree about."""

    topic: str


TASKS = [Task(topic=topic) for topic in TOPICS]


def prompt_of(task: Task) -> str:
    """The question, the same for both."""
    return f"More {task['topic']}?"


@rollout
async def debate(task: Task, resources: NamedResources, rollout: AttemptedRollout) -> None:
    """One debate; its rewards are emitted, not returned."""
    rewards: dict[str, float] = {}
    for name, right in SIDES.items():
        model = resources[name]
        if not isinstance(model, ProxyLLM):
            raise TypeError(f"the resource of policy {name!r} is a model, not {type(model).__name__}")
        said = await chat(model.with_attempted_rollout(rollout), [{"role": "user", "content": prompt_of(task)}])
        rewards[name] = float(said in right)
    emit_reward({"debate": sum(rewards.values()) / len(rewards), **rewards}, primary_key="debate")
