"""Spans, and the records that open and close an attempt among them."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from ._base import Attributes, Record, RecordEnum
from .rollout import AttemptStatus, RolloutSpec, RolloutStatus

__all__ = [
    "AttemptClosed",
    "AttemptOpened",
    "LlmCall",
    "PolicyVersionRun",
    "SpanEventRecord",
    "SpanKind",
    "SpanLinkRecord",
    "SpanRecord",
    "SpanStatus",
]


class SpanKind(RecordEnum):
    """OpenTelemetry's span kind."""

    UNKNOWN = "unknown"
    INTERNAL = "internal"
    SERVER = "server"
    CLIENT = "client"
    PRODUCER = "producer"
    CONSUMER = "consumer"


class SpanStatus(RecordEnum):
    """OpenTelemetry's status code."""

    UNKNOWN = "unknown"
    UNSET = "unset"
    OK = "ok"
    ERROR = "error"


class SpanEventRecord(Record):
    """An event on a span."""

    name: str
    time_unix_nano: int = 0
    attributes: Attributes = Field(default_factory=dict[str, Any])
    dropped_attributes_count: int = 0


class SpanLinkRecord(Record):
    """A link from a span to another (ids in lower-case hex)."""

    trace_id: str
    span_id: str
    trace_state: str = ""
    attributes: Attributes = Field(default_factory=dict[str, Any])
    dropped_attributes_count: int = 0
    flags: int = 0


class PolicyVersionRun(Record):
    """Response tokens in a row that one version of the policy sampled: from ``first_token`` to the next run's.

    Attributes:
        first_token: position of the first of them in the response, from 0.
        policy_version: the version that sampled them.
    """

    first_token: int = Field(ge=0)
    policy_version: int


class LlmCall(Record):
    """One sampled sequence, as the LLM proxy (or a tracer that knows) saw it in the raw upstream answer.

    Token ids and log-probabilities are ``None`` where the upstream did not say.

    Attributes:
        requested_model: model that the agent asked for.
        response_model: model that the server says it used.
        policy_version: version of the policy that sampled the call; of the first token, where there were several.
        policy_version_runs: which version sampled which tokens, where there were several; empty: one sampled all.
        resources_id: version of the resources that the call was made with.
        prompt_token_ids: token ids of the prompt (int32).
        response_token_ids: token ids of the response (int32).
        response_logprobs: log-probability of each response token (float32), of the distribution it was sampled from.
        streamed: whether the answer was streamed.
        http_status: HTTP status of the model server's answer.
        error_message: what went wrong with the call, if anything.
        request_json: messages, tools and parameters as sent, as JSON.
        response_json: the chosen message, as JSON.
    """

    response_id: str | None = None
    requested_model: str = ""
    response_model: str | None = None
    policy_version: int | None = None
    resources_id: str | None = None
    prompt_token_ids: bytes | None = None
    response_token_ids: bytes | None = None
    response_logprobs: bytes | None = None
    choice_index: int = 0
    finish_reason: str | None = None
    streamed: bool = False
    http_status: int | None = None
    error_message: str | None = None
    request_json: str | None = None
    response_json: str | None = None
    policy_version_runs: list[PolicyVersionRun] = Field(default_factory=list[PolicyVersionRun])


class SpanRecord(Record):
    """``spans``: one ended OpenTelemetry span. Key: ``rollout_id``, else ``trace_id``.

    Made by exporters, the OTLP gateway, the LLM proxy and stores; read by the assembler and the view. ``llm_call`` is
    set where the writer knows the raw call; other dialects stay in ``attributes`` and are read by the assembler.

    Attributes:
        rollout_id: rollout that the span belongs to; ``None`` while it has none.
        attempt_id: attempt that the span belongs to; ``None`` while it has none.
        sequence_id: Agent Lightning's hint of the order (0: none); what counts is the order of the log.
        parent_id: span that this one is nested in; ``None`` for a root.
        name: name of the span.
        kind: ``internal``, ``server``, ``client``, ``producer`` or ``consumer``.
        status: ``unset``, ``ok`` or ``error``.
        status_message: what goes with the status, such as an error's text.
        start_unix_nano: when the span began.
        end_unix_nano: when the span ended.
        attributes: attributes of the span, as JSON.
        events: events on the span, each with a name, a time and attributes, as JSON.
        links: links to other spans, as JSON.
        resource_attributes: attributes of the process that made the span (OpenTelemetry's resource), as JSON.
        resource_schema_url: schema of the resource's attributes.
        scope_name: library that made the span.
        scope_version: version of that library.
        scope_schema_url: schema of the span's attributes.
        trace_state: W3C ``tracestate`` of the span.
        flags: W3C trace flags of the span, as OTLP has them.
        dropped_attributes_count: attributes that the SDK left out.
        dropped_events_count: events that the SDK left out.
        dropped_links_count: links that the SDK left out.
    """

    rollout_id: str | None = None
    attempt_id: str | None = None
    sequence_id: int = 0
    trace_id: str
    span_id: str
    parent_id: str | None = None
    name: str
    kind: SpanKind = SpanKind.INTERNAL
    status: SpanStatus = SpanStatus.UNSET
    status_message: str = ""
    start_unix_nano: int = 0
    end_unix_nano: int = 0
    attributes: Attributes = Field(default_factory=dict[str, Any])
    events: list[SpanEventRecord] = Field(default_factory=list[SpanEventRecord])
    links: list[SpanLinkRecord] = Field(default_factory=list[SpanLinkRecord])
    resource_attributes: Attributes = Field(default_factory=dict[str, Any])
    resource_schema_url: str = ""
    scope_name: str = ""
    scope_version: str = ""
    scope_schema_url: str = ""
    trace_state: str = ""
    flags: int = 0
    dropped_attributes_count: int = 0
    dropped_events_count: int = 0
    dropped_links_count: int = 0
    llm_call: LlmCall | None = None


class AttemptOpened(Record):
    """``spans``: an attempt begins. Made by the life cycle, before any span of the attempt (Runners wait for it).

    Attributes:
        opened_unix_nano: when the attempt began.
    """

    rollout: RolloutSpec
    attempt_id: str
    attempt_sequence: int = Field(ge=1)
    worker_id: str | None = None
    opened_unix_nano: int


class AttemptClosed(Record):
    """``spans``: an attempt is over, after every span of it. Made by the life cycle, the only authority on how.

    A rollout that ends without any attempt gets an opened and closed pair of an attempt named ``<rollout_id>-none``.

    Attributes:
        status: how the attempt ended.
        closed_unix_nano: when the attempt was closed.
    """

    rollout_id: str
    attempt_id: str
    attempt_sequence: int
    status: AttemptStatus
    rollout_status: RolloutStatus
    final: bool
    error_type: str | None = None
    error_message: str | None = None
    closed_unix_nano: int
