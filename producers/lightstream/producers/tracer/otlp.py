"""A second way out for spans: any OTLP collector, by OpenTelemetry's own exporter and environment variables."""

from __future__ import annotations

import os

from opentelemetry.sdk.environment_variables import (
    OTEL_EXPORTER_OTLP_ENDPOINT,
    OTEL_EXPORTER_OTLP_PROTOCOL,
    OTEL_EXPORTER_OTLP_TRACES_ENDPOINT,
    OTEL_EXPORTER_OTLP_TRACES_PROTOCOL,
)
from opentelemetry.sdk.trace import SpanProcessor
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter

from lightstream.schemas.errors import SettingsError

__all__ = ["otlp_processor"]

_HTTP, _GRPC = "http/protobuf", "grpc"


def otlp_processor(endpoint: str | None = None) -> SpanProcessor | None:
    """A batch processor that sends to a collector, or ``None`` where no endpoint is set.

    Args:
        endpoint: full URL of the traces endpoint; ``None`` reads OpenTelemetry's environment variables
            (``OTEL_EXPORTER_OTLP_TRACES_ENDPOINT``, ``OTEL_EXPORTER_OTLP_ENDPOINT``, and the protocol's).

    Raises:
        SettingsError: the protocol is neither ``http/protobuf`` nor ``grpc``.
    """
    named = os.environ.get(OTEL_EXPORTER_OTLP_TRACES_ENDPOINT) or os.environ.get(OTEL_EXPORTER_OTLP_ENDPOINT)
    if not endpoint and not named:
        return None
    return BatchSpanProcessor(_exporter(endpoint))


def _exporter(endpoint: str | None) -> SpanExporter:
    protocol = os.environ.get(OTEL_EXPORTER_OTLP_TRACES_PROTOCOL) or os.environ.get(OTEL_EXPORTER_OTLP_PROTOCOL, _HTTP)
    if protocol == _HTTP:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        return OTLPSpanExporter(endpoint=endpoint)
    if protocol == _GRPC:
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as OTLPGrpcSpanExporter

        return OTLPGrpcSpanExporter(endpoint=endpoint)
    raise SettingsError(
        f"{OTEL_EXPORTER_OTLP_TRACES_PROTOCOL} or {OTEL_EXPORTER_OTLP_PROTOCOL} is {protocol!r}; "
        f"it must be {_HTTP!r} or {_GRPC!r}."
    )
