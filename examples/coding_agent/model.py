"""A tiny model that knows the words of these files, and what it is taught before rewards teach it more."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from examples.word_model import make_word_model
from lightstream.trainers import teach_answers

from .agent import EDIT, FAILED
from .bugs import FUNCTIONS, OPERATORS, Bug, bugs, line_of, text_of

__all__ = ["make_model", "teach_the_form"]

TOOL = {"name": EDIT["name"], "parameters": EDIT["input_schema"], "description": EDIT.get("description")}
"""The tool as the proxy hands it on to models that take OpenAI's, letter by letter."""

CALL = ('<tool_call>{"name": "edit", "arguments": {"line": "return a ', ' b"}}</tool_call>')
"""The text around the operator in a call, as models of the Hermes and Qwen families write it."""

WORDS = [
    *CALL,
    *FUNCTIONS,
    *(bug["test"] for bug in bugs()),
    *("def ", "(a, b):\n    ", "return a ", " b", "\n\n"),
    json.dumps(TOOL),
    FAILED,
    *(f"{role}\n" for role in ("tools", "user", "assistant", "tool")),
]

WARM_UP_STEPS = 200
"""Some seconds in which the random model learns the form, as from somebody who errs: an edit with the right operator
half of the time, else with any. To be right each time, rewards tell."""


def make_model(folder: Path, *, seed: int) -> Path:
    """The tiny model of bytes with a token for each of :data:`WORDS`: an edit is three tokens."""
    return make_word_model(folder, list(dict.fromkeys(WORDS)), seed=seed)


def teach_the_form(seed: int) -> Callable[[Any, Any], None]:
    """An edit, at first and after one that failed; right half of the time, else any."""
    asked = [
        (conversation, FUNCTIONS[bug["function"]])
        for number, bug in enumerate(bugs())
        for conversation in (_shown(bug), _failed(bug, OPERATORS[number % len(OPERATORS)]))
    ]
    return teach_answers(
        [conversation for conversation, _ in asked],
        [[f"{CALL[0]}{operator}{CALL[1]}" for operator in OPERATORS + len(OPERATORS) * right] for _, right in asked],
        tools=[{"type": "function", "function": TOOL}],
        steps=WARM_UP_STEPS,
        read_prompts=True,
        seed=seed,
    )


def _shown(bug: Bug) -> list[dict[str, Any]]:
    return [{"role": "user", "content": text_of(bug, bug["line"])}]


def _failed(bug: Bug, operator: str) -> list[dict[str, Any]]:
    """The conversation once an edit with this operator has failed."""
    call = {"type": "function", "function": {"name": "edit", "arguments": {"line": line_of(operator)}}}
    return [
        *_shown(bug),
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": FAILED},
    ]
