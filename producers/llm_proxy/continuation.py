"""Answers that an exchange of weights interrupts: asked on with the tokens so far, and joined. Pure.

The model server says ``interrupted`` where it hands an answer back, and takes :data:`SO_FAR` to go on with it: text,
calls of tools and usage are then those of the whole answer, token ids and log-probabilities those that are new.
"""

from __future__ import annotations

from typing import Any

from .capture import INTERRUPTED, Completion
from .upstream import UpstreamError

SO_FAR = "answers_so_far"

HEAD = ("id", "created", "model")
"""Fields by which a client knows an answer: those of its first part."""


def going_on(request: dict[str, Any], completion: Completion, choices_wanted: int) -> dict[str, Any]:
    """The request for the rest of an answer.

    Raises:
        UpstreamError: the model server did not say which tokens it has made.
    """
    so_far: list[dict[str, Any]] = []
    for index in range(choices_wanted):
        choice = completion.choice(index)
        if choice.is_interrupted and choice.token_ids is None:
            raise UpstreamError("the LLM server interrupted an answer without giving its token ids", status=502)
        text = choice.message.texts.get("text", "")
        is_over = choice.finish_reason is not None
        so_far.append({"token_ids": choice.token_ids or [], "text_length": len(text), "is_over": is_over})
    return request | {SO_FAR: so_far}


def without_interruption(body: dict[str, Any]) -> None:
    """Remove, in place, the signs that an answer is handed back: the client has the rest in the same stream."""
    for choice in body.get("choices") or ():
        if isinstance(choice, dict) and choice.get("finish_reason") == INTERRUPTED:
            choice["finish_reason"] = None


def joined(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """A whole answer, joined from an interrupted one and its continuation."""
    choices = [_joined(old, new) for old, new in zip(before["choices"], after["choices"], strict=True)]
    return after | {name: before[name] for name in HEAD if name in before} | {"choices": choices}


def _joined(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """One choice; lists that belong to tokens are those of both."""
    lists: dict[str, Any] = {
        name: [*(before.get(name) or []), *(after.get(name) or [])]
        for name in ("token_ids", "policy_version_runs")
        if name in before or name in after
    }
    logprobs = after.get("logprobs")
    if isinstance(logprobs, dict):
        old = before.get("logprobs") or {}
        lists["logprobs"] = logprobs | {
            name: [*(old.get(name) or []), *value] for name, value in logprobs.items() if isinstance(value, list)
        }
    return after | lists
