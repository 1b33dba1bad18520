"""Prompts: a task as messages to the model."""

from __future__ import annotations

import inspect

from .tools import TOOLS

__all__ = ["brief", "instructed"]

SHOWN_CHARACTERS_MAX = 24
"""The tiny model is slow to read; the beginning of a task tells what kind it is."""


def brief(question: str) -> str:
    """For a model that cannot read instructions: the beginning of the task alone."""
    return question[:SHOWN_CHARACTERS_MAX]


def instructed(question: str) -> str:
    """For a model that can: the tools, what to answer, and the whole task."""
    tools = "\n".join(f"{letter}: {(inspect.getdoc(tool) or '').splitlines()[0]}" for letter, tool in TOOLS.items())
    return f"Which tool solves the task? Answer with its letter only.\n\n{tools}\n\nTask: {question}"
