"""Abilities of a model's chat template, tried before anything is trained."""

from __future__ import annotations

import logging
from typing import Any

from jinja2 import TemplateError

from lightstream.schemas.errors import TrainingError

logger = logging.getLogger(__name__)

TEMPLATE_ERRORS = (TemplateError, ValueError, TypeError, LookupError, ArithmeticError, AttributeError, RuntimeError)
"""A template is a program: it may end with any of these."""

_USER = {"role": "user", "content": "a question"}
_SYSTEM = {"role": "system", "content": "an instruction"}
_ANSWER = {"role": "assistant", "content": "an answer"}
_TOOL = {
    "type": "function",
    "function": {"name": "a_tool", "description": "a tool", "parameters": {"type": "object", "properties": {}}},
}
_FURTHER: dict[str, tuple[list[dict[str, Any]], list[dict[str, Any]] | None, str]] = {
    "a system message": ([_SYSTEM, _USER], None, "an instruction"),
    "a second turn": ([_USER, _ANSWER, {"role": "user", "content": "one more"}], None, "one more"),
    "tools": ([_USER], [_TOOL], "a_tool"),
}
"""Part -> messages, tools, and a text that the prompt must have."""


def check_chat_template(tokenizer: Any, model: str) -> list[str]:
    """Render a few conversations; log which parts the template refuses or leaves out.

    Args:
        tokenizer: of transformers.
        model: how messages name it.

    Returns:
        The parts that a prompt would not have: ``a system message``, ``a second turn``, ``tools``.

    Raises:
        TrainingError: there is no template, or it refuses a single question.
    """
    if not tokenizer.chat_template:
        raise TrainingError(
            f"the tokenizer of {model!r} has no chat template; chat completions need one.",
            next_step="Set `tokenizer.chat_template`, save model and tokenizer into a folder, and name that.",
        )
    try:
        _render(tokenizer, [_USER], None)
    except TEMPLATE_ERRORS as error:
        raise TrainingError(
            f"the chat template of {model!r} refuses a conversation of one question: {type(error).__name__}: {error}.",
            next_step="Mend `tokenizer.chat_template`, save model and tokenizer into a folder, and name that.",
        ) from error
    lacking: list[str] = []
    for part, (messages, tools, text) in _FURTHER.items():
        try:
            what = "" if text in _render(tokenizer, messages, tools) else "leaves out"
        except TEMPLATE_ERRORS as error:
            what = f"refuses ({error})"
        if what:
            lacking.append(part)
            logger.warning("The chat template of %s %s %s: agents' calls must do without.", model, what, part)
    return lacking


def _render(tokenizer: Any, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None) -> str:
    text: str = tokenizer.apply_chat_template(messages, tools=tools, tokenize=False, add_generation_prompt=True)
    return text
