"""The small task of several examples: in which of four drawers a thing is, which rewards alone tell."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypedDict

from openai import AsyncOpenAI

from examples.word_model import make_word_model
from lightstream.producers import LLM, AttemptedRollout, rollout
from lightstream.trainers import teach_answers

__all__ = [
    "DRAWERS",
    "DRAWER_OF",
    "TASKS",
    "ThingTask",
    "find",
    "make_model",
    "question_of",
    "said_drawer",
    "teach_the_form",
]

DRAWERS = "1234"
DRAWER_OF = {
    "knife": "3", "cup": "1", "plate": "4", "spoon": "2", "fork": "3", "bowl": "1", "cloth": "4", "salt": "2",
}  # fmt: skip

WARM_UP_STEPS = 60
"""A second or two, in which the random model learns to read a question and to answer with any drawer."""


class ThingTask(TypedDict):
    """The thing to find."""

    thing: str


TASKS = [ThingTask(thing=thing) for thing in DRAWER_OF]

_CLIENT = AsyncOpenAI(base_url="http://localhost", api_key="none", max_retries=2)
"""One connection pool per process; each rollout has an address of its own."""


def question_of(task: ThingTask) -> str:
    """Message of the user."""
    return f"{task['thing']}?"


def make_model(folder: Path, *, seed: int) -> Path:
    """The tiny model, to which each thing is one token."""
    return make_word_model(folder, [*DRAWER_OF, "user\n", "assistant\n"], seed=seed)


def teach_the_form(seed: int) -> Callable[[Any, Any], None]:
    """Any drawer, whatever the question."""
    return teach_answers(
        [question_of(task) for task in TASKS],
        list(DRAWERS),
        steps=WARM_UP_STEPS,
        end_turn=False,
        read_prompts=True,
        seed=seed,
    )


async def said_drawer(task: ThingTask, llm: LLM, rollout: AttemptedRollout) -> str:
    """Ask the model; returns what it says."""
    client = _CLIENT.with_options(base_url=llm.get_base_url(rollout.rollout_id, rollout.attempt.attempt_id))
    completion = await client.chat.completions.create(
        model=llm.model, messages=[{"role": "user", "content": question_of(task)}], **llm.sampling_parameters
    )
    return (completion.choices[0].message.content or "")[:1]


@rollout
async def find(task: ThingTask, llm: LLM, rollout: AttemptedRollout) -> float:
    """One call; returns 1 where the thing is in the drawer that the model says."""
    return float(await said_drawer(task, llm, rollout) == DRAWER_OF[task["thing"]])
