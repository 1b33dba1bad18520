"""Responses to clients, in OTLP's words. Pure.

Sources: OTLP specification 1.x ("OTLP/gRPC Response", "OTLP/HTTP Response"), google.rpc ``status.proto`` and
``error_details.proto``.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

from google.protobuf import json_format
from google.protobuf.duration_pb2 import Duration
from google.rpc.code_pb2 import Code
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from ..decode import Rejection

RETRY_AFTER_S = 1
"""Whole seconds, and few: the Python clients give a batch up after 10 s in all, fractions are cut to 0 by some clients,
and 0 makes others use up all their tries at once."""

REJECTIONS_TOLD_MAX = 3
"""Reasons that one answer spells out."""


class Signal(Enum):
    """The signal that a request carries; the value is its name in URLs."""

    TRACES = "traces"
    LOGS = "logs"
    METRICS = "metrics"


class Trouble(Enum):
    """The reason for refusing a request: the HTTP status, and gRPC's code."""

    NOT_OTLP = (400, "INVALID_ARGUMENT")
    NO_ACCESS = (401, "UNAUTHENTICATED")
    NO_SCOPE = (403, "PERMISSION_DENIED")
    TOO_LARGE = (413, "RESOURCE_EXHAUSTED")
    OTHER_MEDIA = (415, "INVALID_ARGUMENT")
    NOT_DURABLE = (503, "UNAVAILABLE")
    """The only one that a client should try again."""

    @property
    def http_status(self) -> int:
        return self.value[0]

    @property
    def grpc_code(self) -> str:
        return self.value[1]


_RESPONSES: dict[Signal, Any] = {
    Signal.TRACES: ExportTraceServiceResponse,
    Signal.LOGS: ExportLogsServiceResponse,
    Signal.METRICS: ExportMetricsServiceResponse,
}


def success(signal: Signal, rejections: list[Rejection]) -> Any:
    """The response message: empty, or with ``partial_success`` where items were left out."""
    response = _RESPONSES[signal]()
    if rejections:
        details = list(dict.fromkeys(rejection.detail for rejection in rejections))
        shown = "; ".join(details[:REJECTIONS_TOLD_MAX])
        more = f"; and {len(details) - REJECTIONS_TOLD_MAX} more reasons" if len(details) > REJECTIONS_TOLD_MAX else ""
        response.partial_success.error_message = shown + more
        if signal is Signal.TRACES:
            response.partial_success.rejected_spans = len(rejections)
        else:
            response.partial_success.rejected_log_records = len(rejections)
    return response


def trouble_status(trouble: Trouble, message: str) -> Any:
    """A ``google.rpc.Status``; of a request that may come again, it says when."""
    status = Status(code=Code.Value(trouble.grpc_code), message=message)
    if trouble is Trouble.NOT_DURABLE:
        status.details.add().Pack(_retry_info())
    return status


def retry_trailers(status: Any) -> tuple[tuple[str, bytes], ...]:
    """gRPC trailers that say when to try again: Python's exporter reads the first, all others the second."""
    return (
        ("google.rpc.retryinfo-bin", _retry_info().SerializeToString()),
        ("grpc-status-details-bin", status.SerializeToString()),
    )


def message_bytes(message: Any, *, as_json: bool) -> bytes:
    """A message in the encoding of the request it answers."""
    if as_json:
        text: str = json_format.MessageToJson(message, indent=None)
        return text.encode()
    encoded: bytes = message.SerializeToString()
    return encoded


def _retry_info() -> Any:
    return RetryInfo(retry_delay=Duration(seconds=RETRY_AFTER_S))
