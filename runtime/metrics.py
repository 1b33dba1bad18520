"""Metrics for Prometheus: the metrics that every server of ours has, and how it adds further ones. No id is ever a
label."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeAlias

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

if TYPE_CHECKING:
    from .own_spans import OwnSpans

Readings: TypeAlias = Callable[[], Iterable[Metric]]
"""Reads what a process has no counters of, when somebody asks. May take a few seconds; called on any thread."""

REQUESTS = Counter("lightstream_http_requests", "HTTP requests, by the status of their answer.", ["server", "status"])
SECONDS = Histogram(
    "lightstream_http_request_seconds",
    "Time from a request to the end of its answer.",
    ["server"],
    buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300),
)

CLIENT_GONE = "499"
"""The status, nginx's, of a request that has no answer."""


class _Read(Collector):
    def __init__(self, readings: Readings) -> None:
        self._readings = readings

    def collect(self) -> Iterable[Metric]:
        return self._readings()


def exposition(readings: Iterable[Readings]) -> bytes:
    """All metrics of this process in Prometheus's text format."""
    own = CollectorRegistry(auto_describe=False)
    for each in readings:
        own.register(_Read(each))
    return generate_latest(REGISTRY) + generate_latest(own)


async def counted(
    server: str, app: ASGIApp, scope: Scope, receive: Receive, send: Send, spans: OwnSpans | None = None
) -> None:
    """Let ``app`` answer a request, and count it."""
    status, began_s, began_unix_nano = CLIENT_GONE, time.perf_counter(), time.time_ns()

    async def note(message: Message) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = str(message["status"])
        await send(message)

    try:
        await app(scope, receive, note)
    finally:
        REQUESTS.labels(server, status).inc()
        SECONDS.labels(server).observe(time.perf_counter() - began_s)
        if spans is not None:
            attributes = {
                "http.request.method": scope["method"],
                "url.path": scope["path"],
                "http.response.status_code": int(status),
            }
            spans.record(f"{scope['method']} {server}", began_unix_nano, attributes)
