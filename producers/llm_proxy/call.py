"""One call on its way through the proxy: its caller, the request, the answer. Pure."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lightstream.runtime.http.headers import ATTEMPT_ID_HEADER, ROLLOUT_ID_HEADER

from .capture import Completion, RequestedExtras
from .dialects import Dialect, Translation
from .upstream import UpstreamAnswer

if TYPE_CHECKING:
    from .releases import Routed
    from .seeds import DrawnSeed

TRACEPARENT = re.compile(r"[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-[0-9a-f]{2}(-.*)?")
"""W3C Trace Context, level 1: version, trace id, parent id, flags; ids of zeros are invalid."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The rollout and attempt of a call: both ids or neither; ``parent_id`` where the caller sent a trace context."""

    rollout_id: str | None
    attempt_id: str | None
    trace_id: str
    parent_id: str | None = None

    @property
    def key(self) -> str:
        """Key of its spans."""
        return self.rollout_id or self.trace_id


@dataclass(slots=True)
class Call:
    """One call.

    Attributes:
        caller: whose it is.
        dialect: the interface that the agent speaks.
        run_seed: seed of the run that it belongs to, where the URL names one.
        resend_count: how many times the client made the request before, and had no answer.
        drawn_seed: the seed that the proxy gave it.
        request_body: as the agent sent it, or as it was translated for the upstream; ``requested_model``,
            ``choices_wanted`` (``n``, for each prompt) and ``streams`` are its.
        asked: the request to the model server.
        sampling_json: its parameters that decide how tokens are drawn; ``None`` until the request was understood.
        started_unix_nano, ended_unix_nano: when the request was complete, and the answer.
        http_status: of the answer to the agent; ``None`` until there is one.
        error_message: why there is no usable answer.
        policy_version, resources_id: which weights answered, where the upstream says so.
        completion: what came back.
        wanted: what the agent itself asked for.
        not_asked_for: what is asked for beside that, and was not of this model server: name -> reason.
        translation: between agent and model server; ``None`` until the request was understood.
        seen_response_id: the answer's id as the agent saw it, where that is not the upstream's.
        release: arm of the release that the agent asked for; ``None`` where it asked for a model.
        upstream_s: seconds of waiting for the model server.
    """

    caller: Caller
    dialect: Dialect
    run_seed: int | None = None
    resend_count: int = 0
    drawn_seed: DrawnSeed | None = None
    request_body: bytes = b""
    requested_model: str = ""
    choices_wanted: int = 1
    streams: bool = False
    upstream_request: dict[str, Any] = field(default_factory=dict[str, Any])
    sampling_json: str | None = None
    started_unix_nano: int = 0
    ended_unix_nano: int = 0
    http_status: int | None = None
    error_message: str | None = None
    policy_version: int | None = None
    resources_id: str | None = None
    completion: Completion = field(default_factory=Completion)
    requested_extras: RequestedExtras = field(default_factory=lambda: RequestedExtras(logprobs=True, token_ids=True))
    not_asked_for: dict[str, str] = field(default_factory=dict[str, str])
    translation: Translation | None = None
    seen_response_id: str | None = None
    release: Routed | None = None
    upstream_s: float = 0.0

    @property
    def is_complete(self) -> bool:
        """True once every requested choice has come to its end, or the model server has said that all is over."""
        choices = self.completion.choices.values()
        if self.completion.is_over and choices:
            return True
        return len(choices) >= self.choices_wanted and all(c.finish_reason is not None for c in choices)


@dataclass(slots=True)
class Reply:
    """The answer to the agent; ``stream`` is set instead of ``body`` for a streamed one."""

    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict[str, str])
    content_type: str = "application/json"
    stream: UpstreamAnswer | None = None


def caller_of(path_ids: Mapping[str, str], headers: Mapping[str, str]) -> Caller:
    """The caller: by the URL, else by headers, else unknown; its trace from ``traceparent``, else a new one.

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
