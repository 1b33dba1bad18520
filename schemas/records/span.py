"""Spans, and the records that open and close an attempt among them."""

from __future__ import annotations

from typing import Any, TypeAlias

from pydantic import Field

from ._base import Record, RecordEnum
from .rollout import AttemptStatus, RolloutSpec, RolloutStatus

_Attributes: TypeAlias = dict[str, Any]
"""Attribute name -> value (an OTLP AnyValue): None, bool, int64, float, str, bytes, or lists and dicts of these."""


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
    attributes: _Attributes = Field(default_factory=dict[str, Any])
    dropped_attributes_count: int = 0


class SpanLinkRecord(Record):
    """A link from a span to another (ids in lower-case hex)."""

    trace_id: str
    span_id: str
    trace_state: str = ""
    attributes: _Attributes = Field(default_factory=dict[str, Any])
    dropped_attributes_count: int = 0
    flags: int = 0


class PolicyVersionRun(Record):
    """Response tokens in a row that one version of the policy sampled: from ``first_token`` to the next run's."""

    first_token: int = Field(ge=0)
    """Position of the first of them in the response, from 0."""
    policy_version: int
    """The version that sampled them."""


class LlmCall(Record):
    """One sampled sequence, as the LLM proxy (or a tracer that knows) saw it in the raw upstream answer.

    Token ids and log-probabilities are ``None`` where the upstream did not say.
    """

    response_id: str | None = None
    requested_model: str = ""
    """Model that the agent asked for."""
    response_model: str | None = None
    """Model that the server says it used."""
    policy_version: int | None = None
    """Version of the policy that sampled the call; of the first token, where there were several."""
    resources_id: str | None = None
    """Version of the resources that the call was made with."""
    prompt_token_ids: bytes | None = None
    """Token ids of the prompt (int32)."""
    response_token_ids: bytes | None = None
    """Token ids of the response (int32)."""
    response_logprobs: bytes | None = None
    """Log-probability of each response token (float32), of the distribution it was sampled from."""
    choice_index: int = 0
    finish_reason: str | None = None
    streamed: bool = False
    """Whether the answer was streamed."""
    http_status: int | None = None
    """HTTP status of the model server's answer."""
    error_message: str | None = None
    """Error of the call, if it failed."""
    request_json: str | None = None
    """Messages, tools and parameters as sent, as JSON."""
    response_json: str | None = None
    """The chosen message, as JSON."""
    policy_version_runs: list[PolicyVersionRun] = Field(default_factory=list[PolicyVersionRun])
    """Versions by the tokens that each sampled, where there were several; empty: one sampled all."""
    response_tokens_text: str | None = None
    """Text of the response tokens, one after another, special tokens too. A token that ends inside a character is as
    the model server shows it."""
    response_token_ends: bytes | None = None
    """End of each response token in that text, in characters from its beginning (int32)."""
    sampling_json: str | None = None
    """Parameters of the request that decide how tokens are drawn (``temperature``, ``top_p``, …), as JSON; one that the
    request left out is not in it. ``None``: not recorded."""


class SpanRecord(Record):
    """``spans``: one ended OpenTelemetry span. Key: ``rollout_id``, else ``trace_id``.

    Made by exporters, the OTLP gateway, the LLM proxy and stores; read by the assembler and the view. ``llm_call`` is
    set where the writer knows the raw call; other dialects stay in ``attributes`` and are read by the assembler.
    """

    rollout_id: str | None = None
    """Rollout that the span belongs to; ``None`` while it has none."""
    attempt_id: str | None = None
    """Attempt that the span belongs to; ``None`` while it has none."""
    sequence_id: int = 0
    """Agent Lightning's hint of the order (0: none); what counts is the order of the log."""
    trace_id: str
    span_id: str
    parent_id: str | None = None
    """Span that this one is nested in; ``None`` for a root."""
    name: str
    """Name of the span."""
    kind: SpanKind = SpanKind.INTERNAL
    """``internal``, ``server``, ``client``, ``producer`` or ``consumer``."""
    status: SpanStatus = SpanStatus.UNSET
    """``unset``, ``ok`` or ``error``."""
    status_message: str = ""
    """Text that goes with the status, such as an error's."""
    start_unix_nano: int = 0
    """Time at which the span began."""
    end_unix_nano: int = 0
    """Time at which the span ended."""
    attributes: _Attributes = Field(default_factory=dict[str, Any])
    """Attributes of the span, as JSON."""
    events: list[SpanEventRecord] = Field(default_factory=list[SpanEventRecord])
    """Events on the span, each with a name, a time and attributes, as JSON."""
    links: list[SpanLinkRecord] = Field(default_factory=list[SpanLinkRecord])
    """Links to other spans, as JSON."""
    resource_attributes: _Attributes = Field(default_factory=dict[str, Any])
    """Attributes of the process that made the span (OpenTelemetry's resource), as JSON."""
    resource_schema_url: str = ""
    """Schema of the resource's attributes."""
    scope_name: str = ""
    """Library that made the span."""
    scope_version: str = ""
    """Version of that library."""
    scope_schema_url: str = ""
    """Schema of the span's attributes."""
    trace_state: str = ""
    """W3C ``tracestate`` of the span."""
    flags: int = 0
    """W3C trace flags of the span, as OTLP has them."""
    dropped_attributes_count: int = 0
    """Attributes that the SDK left out."""
    dropped_events_count: int = 0
    """Events that the SDK left out."""
    dropped_links_count: int = 0
    """Links that the SDK left out."""
    llm_call: LlmCall | None = None


class AttemptOpened(Record):
    """``spans``: an attempt begins. Made by the life cycle, before any span of the attempt (Runners wait for it)."""

    rollout: RolloutSpec
    attempt_id: str
    attempt_sequence: int = Field(ge=1)
    worker_id: str | None = None
    opened_unix_nano: int
    """Time at which the attempt began."""


class AttemptClosed(Record):
    """``spans``: an attempt is over, after every span of it. Made by the life cycle, the only authority on how.

    A rollout that ends without any attempt gets an opened and closed pair of an attempt named ``<rollout_id>-none``.
    """

    rollout_id: str
    attempt_id: str
    attempt_sequence: int
    status: AttemptStatus
    """Status that the attempt ended in."""
    rollout_status: RolloutStatus
    final: bool
    error_type: str | None = None
    error_message: str | None = None
    closed_unix_nano: int
    """Time at which the attempt was closed."""
