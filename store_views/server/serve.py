"""The view as a process: materialiser, HTTP server, and Flight SQL server."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import threading
from collections.abc import AsyncGenerator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from anyio.to_thread import run_sync
from prometheus_client.core import CounterMetricFamily, Metric
from starlette.applications import Starlette

from lightstream.runtime.clock import SystemClock
from lightstream.runtime.gc_tuning import tune_gc
from lightstream.runtime.health import Check
from lightstream.runtime.http.access import Access, access_of
from lightstream.runtime.http.own_tokens import token_of
from lightstream.runtime.http.relay import Relay
from lightstream.runtime.http.server import HttpServer
from lightstream.runtime.kafka import bootstrap_servers
from lightstream.runtime.listening import bind_listener
from lightstream.runtime.processes import read_restarts
from lightstream.runtime.services import Service, announce, withdraw
from lightstream.runtime.settings import Settings
from lightstream.runtime.tls import server_context
from lightstream.schemas.errors import ServiceUnavailableError, SettingsError

from ..materialiser import Materialiser, default_path, view_metrics
from .answering import Answering
from .app import create_app
from .feedback import FeedbackWriter
from .people import NAME as PEOPLE
from .people import PeoplesView
from .release_rules import ReleaseRules
from .releases import ReleaseEndpoints
from .statement import QueryLimits
from .watchdog import Watchdog

logger = logging.getLogger(__name__)

SERVICE = "view"
FLIGHT_SERVICE = "flight-sql"
SETTING = "LIGHTSTREAM_VIEW_PORT"
FLIGHT_SETTING = "LIGHTSTREAM_VIEW_FLIGHT_PORT"
NAME = re.compile(r"(?!lightstream$)[a-z0-9][a-z0-9-]{0,31}")
SHOWN_AGAIN_S_MAX = 30.0
"""After a crash, until the view answers: reading a second's records again takes a fraction of that."""


def named_path(settings: Settings, name: str) -> Path:
    """Return the path of the file of a view with a name; with an empty one, of the view."""
    path = default_path(settings)
    return path.with_name(path.name.replace("lightstream", name, 1)) if name else path


def run(settings: Settings, limits: QueryLimits | None = None, *, name: str = "") -> None:
    """Serve the view until SIGTERM or SIGINT; blocks. Announces itself as ``view`` and ``flight-sql``.

    Args:
        name: of a view beside that one, with a file of its own and any free ports, announced as ``view-<name>`` and
            ``flight-sql-<name>``: what is asked of it, and what ends it, is of no concern to training. With
            ``settings.sql_view``, the one called ``sql`` has the Flight SQL port, and people's statements.

    Raises:
        SettingsError: the name is none.
        ServiceUnavailableError: no Kafka is named or runs, or it does not answer, the port is taken, another process
            owns the file, or the materialiser failed while it ran.
    """

    def stop() -> None:
        server.stop()

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None, None]:
        await run_sync(materialiser.wait_until_shown, SHOWN_AGAIN_S_MAX)
        logger.info("the view answers on %s", server.url)
        async with AsyncExitStack() as stack:
            if rules is not None:
                asking = asyncio.create_task(rules.run())
                stack.callback(asking.cancel)
            await stack.enter_async_context(statements_served())
            yield

    @asynccontextmanager
    async def statements_served() -> AsyncGenerator[None, None]:
        if people is not None:
            yield  # Flight SQL is the other view's
            await people.close()
            return
        flight = "" if name == PEOPLE and settings.sql_view else name
        async with flight_sql_served(settings, flight, server.url, answering, materialiser, allowed, access):
            yield

    if name and not NAME.fullmatch(name):
        raise SettingsError(f"a view's name is 1 to 32 small letters, digits and '-', not {name!r:.100}.")
    path = named_path(settings, name)
    allowed = limits or QueryLimits(timeout_s_max=settings.view_timeout_s_max)
    bootstrap_servers(settings)  # says now, rather than after long patience, that there is no Kafka
    access = access_of(settings, token_of(settings, "view_token"))
    access.require_token(settings, "view", "LIGHTSTREAM_VIEW_TOKEN")
    materialiser = Materialiser(settings, path, on_failure=stop)
    with bind_listener(settings.host, 0 if name else settings.view_port, SETTING) as listener:
        watchdog = Watchdog(
            path,
            memory_bytes_max=settings.view_process_bytes_max,
            duckdb_bytes_max=settings.view_memory_bytes_max,
        )
        answering = Answering(lambda: materialiser.database.cursor(), watchdog)
        people = PeoplesView(settings) if settings.sql_view and not name else None
        feedback = FeedbackWriter(settings, materialiser, answering, allowed)
        asks_rules = name == PEOPLE if settings.sql_view else not name  # where people's statements run
        rules = ReleaseRules(settings, materialiser, answering, allowed) if asks_rules else None
        app = create_app(
            materialiser, allowed, lifespan, access, answering, people, feedback, ReleaseEndpoints(settings)
        )
        ready: list[Check] = [materialiser.unready, materialiser.kafka]
        server = HttpServer(
            app,
            settings,
            name=f"{SERVICE}-{name}" if name else SERVICE,
            listener=listener,
            on_stopping=app.state.changes.close,
            ready=ready,
            metrics=[
                partial(view_metrics, materialiser),
                materialiser.room.readings,
                *([] if rules is None else [rules.readings]),
                *([] if name else [partial(_restarts, settings)]),
            ],
        )
        tune_gc()
        materialiser.start()
        try:
            server.run()
        finally:
            feedback.close()
            materialiser.stop()
    if materialiser.failure is not None:
        raise ServiceUnavailableError(f"the view stopped: {materialiser.failure}") from materialiser.failure


def _restarts(settings: Settings) -> Iterable[Metric]:
    """Of the processes that `lightstream up` keeps running on this machine; it has no server of its own."""
    restarts = CounterMetricFamily(
        "lightstream_restarts", "Times that `lightstream up` started a process again.", labels=["process"]
    )
    for name, noted in read_restarts(settings).items():
        restarts.add_metric([name], noted.count)
    return [restarts]


@asynccontextmanager
async def flight_sql_served(
    settings: Settings,
    name: str,
    url: str,
    answering: Answering,
    materialiser: Materialiser,
    limits: QueryLimits,
    access: Access,
) -> AsyncGenerator[None]:
    """Serve Flight SQL too while the block runs, with TLS where the settings have a certificate.

    Args:
        url: of the HTTP server: Flight is announced with its host.
    """
    try:
        from .flight_sql import FlightSqlServer  # 15 MB, which nothing else needs
    except ImportError as error:  # not each build of pyarrow has Flight
        logger.warning("the view speaks no Flight SQL: %s", error)
        yield
        return
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    port = 0 if name else settings.view_flight_port
    context = server_context(settings, alpn=["h2"])
    address = f"grpc://{host}:{port}" if context is None else "grpc://127.0.0.1:0"
    server = FlightSqlServer(address, answering, materialiser, asyncio.get_running_loop(), limits, access)
    service = f"{FLIGHT_SERVICE}-{name}" if name else FLIGHT_SERVICE
    async with AsyncExitStack() as stack:
        stack.callback(lambda: threading.Thread(target=server.shutdown, daemon=True).start())  # waits for this loop
        scheme, shown = "grpc", server.port
        if context is not None:
            listener = stack.enter_context(bind_listener(settings.host, port, FLIGHT_SETTING))
            relay = Relay(listener, server.port, context)
            await relay.start()
            stack.push_async_callback(relay.stop)
            scheme, shown = "grpc+tls", listener.getsockname()[1]
        announced = f"{scheme}://{urlsplit(url).netloc.rpartition(':')[0]}:{shown}"
        announce(settings, Service(service, announced, os.getpid(), SystemClock().now_unix_nano()))
        stack.callback(withdraw, settings, service, os.getpid())
        yield
