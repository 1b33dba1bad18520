"""Sends COUNT spans by a stock exporter: ``python send.py (http/protobuf | grpc) ENDPOINT COUNT``."""

from __future__ import annotations

import os
import sys

from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcSpanExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor


def main(protocol: str, endpoint: str, count: int) -> None:
    os.environ |= {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip"}
    exporter = GrpcSpanExporter() if protocol == "grpc" else HttpSpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter, max_queue_size=100_000))
    tracer = provider.get_tracer("python")
    for number in range(count):
        tracer.start_span(f"python-{number}", attributes={"ids": [i * 1000 for i in range(64)]}).end()
    assert provider.force_flush(120_000)
    provider.shutdown()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
