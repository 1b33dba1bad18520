"""A (text) completion request in OpenAI's shape, checked: a chat request with prompts in place of messages. Pure."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from .chat_request import CHOICES_MAX, ChatRequest, RequestError, parse_chat_request

__all__ = ["Prompt", "TextRequest", "parse_text_request"]

Prompt = str | list[int]
"""Text, or token ids."""

_NEUTRAL: dict[str, tuple[Any, ...]] = {"echo": (False, None), "suffix": ("", None), "best_of": (None,)}
"""Parameters we do not support -> values that ask for nothing."""


@dataclass(frozen=True, slots=True)
class TextRequest(ChatRequest):
    """What to generate; ``choices`` for each prompt, ``messages`` and ``tools`` are empty."""

    prompts: tuple[Prompt, ...]


def parse_text_request(body: object) -> TextRequest:
    """Check the decoded JSON body of a request.

    Raises:
        RequestError: it is not an object, lacks a prompt, or a parameter has a value it cannot have.
    """
    if not isinstance(body, dict):
        raise RequestError(f"the body must be a JSON object, not {type(body).__name__}")
    values: dict[str, Any] = dict(body)
    for name, neutral in _NEUTRAL.items():
        if name in values and values[name] not in neutral:
            raise RequestError(f"{name}={values[name]!r} is not supported here", parameter=name)
    prompts = _prompts(values.pop("prompt", None))
    best = values.pop("logprobs", None)
    if best is not None and type(best) is not int:
        raise RequestError(f"logprobs must be an integer, not {best!r}", parameter="logprobs")
    values |= {"logprobs": best is not None, "top_logprobs": best or 0, "tools": None}
    values["messages"] = [{"role": "user", "content": ""}]  # a chat request has some
    chat = parse_chat_request(values)
    if chat.choices * len(prompts) > CHOICES_MAX:
        message = f"{len(prompts)} prompts with n={chat.choices} are over {CHOICES_MAX} choices"
        raise RequestError(message, parameter="prompt")
    known: dict[str, Any] = {field.name: getattr(chat, field.name) for field in fields(chat)}
    known |= {"messages": [], "prompts": prompts}
    return TextRequest(**known)


def _prompts(value: Any) -> tuple[Prompt, ...]:
    prompts: Any = [value] if isinstance(value, str) or _is_ids(value) else value
    if isinstance(prompts, list) and prompts and all((isinstance(p, str) and p) or _is_ids(p) for p in prompts):
        return tuple(prompts)
    raise RequestError("prompt must be a string, a list of token ids, or a list of these", parameter="prompt")


def _is_ids(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(type(token) is int and token >= 0 for token in value)
