"""One call on its way through the proxy: who makes it, what was asked, what came back. Pure."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lightstream.schemas.http_headers import ATTEMPT_ID_HEADER, ROLLOUT_ID_HEADER

__all__ = ["Answer", "Call", "Caller", "Choice", "caller_of"]

TRACEPARENT = re.compile(r"[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-[0-9a-f]{2}(-.*)?")
"""W3C Trace Context, level 1: version, trace id, parent id, flags; ids of zeros are invalid."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Whose call it is: both ids or neither; ``parent_id`` where the caller sent a trace context."""

    rollout_id: str | None
    attempt_id: str | None
    trace_id: str
    parent_id: str | None = None

    @property
    def key(self) -> str:
        """Key of its spans."""
        return self.rollout_id or self.trace_id


@dataclass(slots=True)
class Choice:
    """One sampled sequence. ``token_ids`` and ``logprobs`` are ``None`` where the upstream did not say.

    ``prompt_token_ids`` is its own prompt, where a request had several.
    """

    index: int
    prompt_token_ids: list[int] | None = None
    token_ids: list[int] | None = None
    logprobs: list[float] | None = None
    finish_reason: str | None = None
    message: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass(slots=True)
class Answer:
    """What the upstream said, as far as it came."""

    response_id: str | None = None
    model: str | None = None
    prompt_token_ids: list[int] | None = None
    choices: dict[int, Choice] = field(default_factory=dict[int, Choice])
    usage: dict[str, Any] | None = None

    def choice(self, index: int) -> Choice:
        """The choice of that index, made if it is new."""
        return self.choices.setdefault(index, Choice(index))


@dataclass(slots=True)
class Call:
    """One call.

    Attributes:
        caller: whose it is.
        request_body: as the agent sent it, or as it was translated for the upstream; ``requested_model``,
            ``choices_wanted`` (``n``, for each prompt) and ``streams`` are its.
        started_unix_nano, ended_unix_nano: when the request was complete, and the answer.
        http_status: of the answer to the agent; ``None`` until there is one.
        error_message: why there is no usable answer.
        policy_version, resources_id: which weights answered, where the upstream says so.
        answer: what came back.
        api: the interface that the agent spoke: ``chat``, ``text_completion``, ``messages`` or ``responses``.
        seen_response_id: the answer's id as the agent saw it, where that is not the upstream's.
    """

    caller: Caller
    request_body: bytes = b""
    requested_model: str = ""
    choices_wanted: int = 1
    streams: bool = False
    started_unix_nano: int = 0
    ended_unix_nano: int = 0
    http_status: int | None = None
    error_message: str | None = None
    policy_version: int | None = None
    resources_id: str | None = None
    answer: Answer = field(default_factory=Answer)
    api: str = "chat"
    seen_response_id: str | None = None

    @property
    def is_complete(self) -> bool:
        """Whether every choice asked for came to its end."""
        choices = self.answer.choices.values()
        return len(choices) >= self.choices_wanted and all(c.finish_reason is not None for c in choices)


def caller_of(path_ids: Mapping[str, str], headers: Mapping[str, str]) -> Caller:
    """Who calls: by the URL, else by headers, else nobody known; its trace from ``traceparent``, else a new one.

    Raises:
        ValueError: one of the two ids without the other.
    """
    rollout_id = path_ids.get("rollout_id") or headers.get(ROLLOUT_ID_HEADER)
    attempt_id = path_ids.get("attempt_id") or headers.get(ATTEMPT_ID_HEADER)
    if (rollout_id is None) != (attempt_id is None):
        raise ValueError(f"{ROLLOUT_ID_HEADER} and {ATTEMPT_ID_HEADER} must be given together, or neither")
    traced = TRACEPARENT.fullmatch(headers.get("traceparent", ""))
    if traced is None:
        return Caller(rollout_id, attempt_id, secrets.token_hex(16))
    return Caller(rollout_id, attempt_id, traced[1], traced[2])
