"""OTLP over gRPC.

Source: OTLP specification 1.x, "OTLP/gRPC". Messages are taken as bytes and decoded by ourselves, as HTTP's are.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn

import grpc
import grpc.aio

from lightstream.runtime.http.tokens import INGEST
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import DecodeError, PublishError, ServiceUnavailableError

from ...attribution import UNATTRIBUTED
from .budget import ByteBudget
from .intake import Intake
from .request_headers import attribution_of_request, authorizations_in, gateway_access
from .responses import Signal, Trouble, message_bytes, retry_trailers, success, trouble_status

logger = logging.getLogger(__name__)

SERVICES = {
    Signal.TRACES: "opentelemetry.proto.collector.trace.v1.TraceService",
    Signal.LOGS: "opentelemetry.proto.collector.logs.v1.LogsService",
    Signal.METRICS: "opentelemetry.proto.collector.metrics.v1.MetricsService",
}

KEEPALIVE_PING_MIN_MS = 10_000
"""Clients may ping an idle connection this often; gRPC's default (5 minutes) would close the connections of those that
ping every 10 s, as Go's and Java's do when so configured."""


def grpc_server(settings: Settings, intake: Intake, budget: ByteBudget) -> grpc.aio.Server:
    """The server, with its services but not yet with a port; for the running event loop.

    A message over ``gateway_request_bytes_max``, unpacked, is refused by gRPC itself (``RESOURCE_EXHAUSTED``).
    """
    server = grpc.aio.server(
        options=(
            ("grpc.max_receive_message_length", settings.gateway_request_bytes_max),
            ("grpc.so_reuseport", 0),
            ("grpc.http2.min_ping_interval_without_data_ms", KEEPALIVE_PING_MIN_MS),
        )
    )
    gateway = _GrpcGateway(settings, intake, budget)
    server.add_generic_rpc_handlers(
        tuple(
            grpc.method_handlers_generic_handler(
                service, {"Export": grpc.unary_unary_rpc_method_handler(gateway.method(signal))}
            )
            for signal, service in SERVICES.items()
        )
    )
    return server


class _GrpcGateway:
    """State that the services share."""

    def __init__(self, settings: Settings, intake: Intake, budget: ByteBudget) -> None:
        self._access = gateway_access(settings)
        self._intake = intake
        self._budget = budget

    def method(self, signal: Signal) -> Callable[[bytes, Any], Awaitable[bytes]]:
        """``Export`` of the signal's service."""

        async def export(body: bytes, context: Any) -> bytes:
            headers = {str(name): value for name, value in context.invocation_metadata() if isinstance(value, str)}
            status = self._access.refusal(*authorizations_in(headers), scopes=(INGEST,))
            if status == Trouble.NO_SCOPE.http_status:
                await _abort(context, Trouble.NO_SCOPE, f"a token with the scope {INGEST} is needed.")
            if status is not None:
                await _abort(context, Trouble.NO_ACCESS, "valid authorization metadata is needed.")
            try:
                async with self._budget.hold() as hold:
                    await hold.add(len(body))
                    return await self._take(signal, body, headers)
            except (PublishError, ServiceUnavailableError) as error:
                await _abort(context, Trouble.NOT_DURABLE, str(error))
            except DecodeError as error:
                await _abort(context, Trouble.NOT_OTLP, str(error))

        return export

    async def _take(self, signal: Signal, body: bytes, headers: dict[str, str]) -> bytes:
        fallback = attribution_of_request(UNATTRIBUTED, headers)
        rejections = await self._intake.take(
            signal, body, as_json=False, fallback=fallback, origin=f"otlp/grpc/{signal.value}"
        )
        return message_bytes(success(signal, rejections), as_json=False)


async def _abort(context: Any, trouble: Trouble, message: str) -> NoReturn:
    trailers = retry_trailers(trouble_status(trouble, message)) if trouble is Trouble.NOT_DURABLE else ()
    await context.abort(grpc.StatusCode[trouble.grpc_code], message, trailers)
    raise AssertionError("abort() raises")
