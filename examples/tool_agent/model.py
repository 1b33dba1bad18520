"""A tiny model to which words of this task are one token each, and what it is taught before rewards teach it more."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from examples.word_model import make_word_model
from lightstream.trainers import teach_answers

from .agent import COUNTS, SHELF_OF, SHELVES, TOOLS, Task, question_of, sample_tasks

__all__ = ["make_model", "teach_the_form"]

CALL = ('<tool_call>{"name": "count", "arguments": {"ware": "', '", "shelf": "', '"}}</tool_call>')
"""The text around ware and shelf in a call, as models of the Hermes and Qwen families write it."""

ROLES = ("tools", "user", "assistant", "tool")
WORDS = [
    *CALL,
    *SHELF_OF,
    "How many ",
    *(json.dumps(tool["function"]) for tool in TOOLS),
    *(f"{role}\n" for role in ROLES),
]

TRIED_TASKS = 256
WARM_UP_STEPS = 300
"""Some seconds in which the random model learns the form: first a call of the tool for the ware in question, then a
number. From which shelf, rewards tell; and that the number is always the tool's, which it is every other time here. To
look there at all is more than rewards could teach a random model: they only weigh what is tried."""


def make_model(folder: Path, *, seed: int) -> Path:
    """The tiny model of bytes, with a token for each of :data:`WORDS`: a call is six tokens, not eighty."""
    return make_word_model(folder, WORDS, seed=seed)


def teach_the_form(seed: int) -> Callable[[Any, Any], None]:
    """A call for any shelf as the first answer; a number as the second, half of the time the tool's."""
    tasks = sample_tasks(TRIED_TASKS, seed)
    calls = [[f"{CALL[0]}{task['ware']}{CALL[1]}{shelf}{CALL[2]}" for shelf in SHELVES] for task in tasks]
    shelves = [SHELVES[i % len(SHELVES)] for i in range(TRIED_TASKS)]
    counted = [task["stock"][shelf] for task, shelf in zip(tasks, shelves, strict=True)]
    return teach_answers(
        [
            *([question_of(task)] for task in tasks),
            *(_called(task, shelf) for task, shelf in zip(tasks, shelves, strict=True)),
        ],
        [*calls, *([*COUNTS, *[count] * len(COUNTS)] for count in counted)],
        tools=TOOLS,
        steps=WARM_UP_STEPS,
        read_prompts=True,
        seed=seed,
    )


def _called(task: Task, shelf: str) -> list[dict[str, Any]]:
    """The conversation once the tool was called for a shelf."""
    function = {"name": "count", "arguments": {"ware": task["ware"], "shelf": shelf}}
    return [
        question_of(task),
        {"role": "assistant", "content": None, "tool_calls": [{"type": "function", "function": function}]},
        {"role": "tool", "content": task["stock"][shelf]},
    ]
