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


class LlmCall(Record):
    """One sampled sequence, as the LLM proxy (or a tracer that knows) saw it in the raw upstream answer.

    ``prompt_token_ids`` and ``response_token_ids`` are int32, ``response_logprobs`` float32, little-endian; ``None``
    where the upstream did not say. Log-probabilities align one to one with ``response_token_ids`` and are those of the
    sampling distribution. ``policy_version`` is the version that sampled *all* tokens of this call.
    ``request_json`` holds messages, tools and parameters as sent; ``response_json`` the chosen message.
    With ``n > 1`` each choice is a record of its own, told apart by ``choice_index``.
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


class SpanRecord(Record):
    """``spans``: one ended OpenTelemetry span. Key: ``rollout_id``, else ``trace_id``.

    Made by exporters, the OTLP gateway, the LLM proxy and stores; read by the assembler and the view. ``trace_id`` has
    32 and ``span_id`` 16 lower-case hex digits. ``llm_call`` is set where the writer knows the raw call; other
    dialects stay in ``attributes`` and are read by the assembler. ``sequence_id`` is Agent Lightning's order hint (0:
    none); the order of record is the offset.
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
    """``spans``: an attempt begins. Made by the life cycle, before any span of the attempt (Runners wait for it)."""

    rollout: RolloutSpec
    attempt_id: str
    attempt_sequence: int = Field(ge=1)
    worker_id: str | None = None
    opened_unix_nano: int


class AttemptClosed(Record):
    """``spans``: an attempt is over, after every span of it. Made by the life cycle, the only authority on how.

    ``final`` is true for exactly one attempt of a rollout; its trajectory is the one that groups count. A rollout that
    ends without any attempt gets an opened and closed pair of an attempt named ``<rollout_id>-none``.
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
