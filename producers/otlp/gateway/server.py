"""The gateway as a process."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncGenerator, Iterable

from prometheus_client.core import GaugeMetricFamily, Metric

from lightstream.runtime.clock import SystemClock
from lightstream.runtime.http.relay import Relay
from lightstream.runtime.http.server import DRAIN_TIMEOUT_S, HttpServer
from lightstream.runtime.kafka import KafkaContact, KafkaPublisher, bootstrap_servers
from lightstream.runtime.services import Service, announce, withdraw
from lightstream.runtime.settings import Settings
from lightstream.runtime.tls import server_context, server_url
from lightstream.schemas.errors import LightstreamError

from .budget import ByteBudget
from .collector_topics import CollectorTopics
from .grpc_service import grpc_server
from .http_app import create_app
from .intake import Intake
from .listeners import open_listeners
from .request_headers import gateway_access

logger = logging.getLogger(__name__)

SERVICE = "gateway"
GRPC_SERVICE = "gateway-grpc"
"""Under these names the two addresses are announced."""

LINGER_MS = 0.0
"""A client waits for each request, so none lingers: a batch is made of what came while the last one was sent."""


def run(settings: Settings) -> None:
    """Serve until SIGTERM or Ctrl-C; announced as ``gateway`` (HTTP) and ``gateway-grpc``.

    Raises:
        ServiceUnavailableError: a port is taken, no Kafka is named or running, or a Collector's topic may not be read.
    """
    server = gateway(settings)
    logger.info("the gateway takes OTLP on %s", server.url)
    server.run()


def gateway(settings: Settings) -> HttpServer:
    """As :func:`run`, but returns the server before it starts.

    When it stops, requests under way are answered first, whichever way they came, and all records are durable.
    """
    bootstrap_servers(settings)  # says now, rather than at the first request, that there is no Kafka
    tokens = "LIGHTSTREAM_GATEWAY_TOKEN or LIGHTSTREAM_GATEWAY_BASIC_AUTH"
    gateway_access(settings).require_token(settings, "gateway", tokens)
    grpc_context = server_context(settings, alpn=["h2"])
    listeners = open_listeners(settings)
    publisher = KafkaPublisher(settings, linger_ms=LINGER_MS)
    relays: list[Relay] = []
    budgets: list[ByteBudget] = []

    def stop_accepting() -> None:
        for relay in relays:
            relay.stop_accepting()

    def fail(error: LightstreamError) -> None:
        web.fail(error)

    @contextlib.asynccontextmanager
    async def beside(intake: Intake, budget: ByteBudget) -> AsyncGenerator[None]:
        budgets.append(budget)
        server = grpc_server(settings, intake, budget)
        relay = Relay(listeners.grpc, server.add_insecure_port("127.0.0.1:0"), grpc_context)
        topics = CollectorTopics(settings, intake, asyncio.get_running_loop(), fail)
        await server.start()
        await relay.start()
        relays.append(relay)
        topics.start()
        url = server_url(settings, listeners.grpc)
        announce(settings, Service(GRPC_SERVICE, url, os.getpid(), SystemClock().now_unix_nano()))
        try:
            yield
        finally:
            withdraw(settings, GRPC_SERVICE, os.getpid())
            await topics.stop()
            await server.stop(DRAIN_TIMEOUT_S)
            await relay.stop()
            await asyncio.to_thread(publisher.close)
            listeners.grpc.close()

    web = HttpServer(
        create_app(settings, lambda: Intake(settings, publisher), beside),
        settings,
        name=SERVICE,
        listener=listeners.http,
        on_stopping=stop_accepting,
        ready=[KafkaContact(settings)],
        metrics=[lambda: _memory_metrics(settings, budgets)],
    )
    return web


def _memory_metrics(settings: Settings, budgets: Iterable[ByteBudget]) -> Iterable[Metric]:
    held_bytes = sum(budget.held_bytes for budget in budgets)
    return [
        GaugeMetricFamily("lightstream_gateway_held_bytes", "Memory of the requests under way.", held_bytes),
        GaugeMetricFamily(
            "lightstream_gateway_held_bytes_max", "Above it requests wait.", settings.send_buffer_bytes_max
        ),
    ]
