"""The view as a process: materialiser and HTTP server."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial

from anyio.to_thread import run_sync
from starlette.applications import Starlette

from lightstream.runtime.gc_tuning import tune_gc
from lightstream.runtime.health import Check
from lightstream.runtime.http_access import Access
from lightstream.runtime.http_server import HttpServer
from lightstream.runtime.kafka import bootstrap_servers
from lightstream.runtime.listening import bind_listener
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import ServiceUnavailableError

from ..materialiser import Materialiser, view_metrics
from .app import create_app
from .query import QueryLimits

__all__ = ["run"]

logger = logging.getLogger(__name__)

SERVICE = "view"
SETTING = "LIGHTSTREAM_VIEW_PORT"
SHOWN_AGAIN_S_MAX = 30.0
"""After a crash, until the view answers: reading a second's records again takes a fraction of that."""


def run(settings: Settings, limits: QueryLimits | None = None) -> None:
    """Serve the view until SIGTERM or SIGINT; blocks. Announces itself as ``view``.

    Raises:
        ServiceUnavailableError: no Kafka is named or runs, or it does not answer, the port is taken, another process
            owns the file, or the materialiser failed while it ran.
    """

    def stop() -> None:
        server.stop()

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None, None]:
        await run_sync(materialiser.wait_until_shown, SHOWN_AGAIN_S_MAX)
        logger.info("the view answers on %s", server.url)
        yield

    bootstrap_servers(settings)  # says now, rather than after long patience, that there is no Kafka
    access = Access(*([] if settings.view_token is None else [settings.view_token.get_secret_value()]))
    access.warn_where_open(settings.host, "view", "LIGHTSTREAM_VIEW_TOKEN")
    materialiser = Materialiser(settings, on_failure=stop)
    with bind_listener(settings.host, settings.view_port, SETTING) as listener:
        app = create_app(materialiser, limits, lifespan, access)
        ready: list[Check] = [materialiser.unready, materialiser.kafka]
        server = HttpServer(
            app,
            settings,
            name=SERVICE,
            listener=listener,
            on_stopping=app.state.changes.close,
            ready=ready,
            metrics=[partial(view_metrics, materialiser)],
        )
        tune_gc()
        materialiser.start()
        try:
            server.run()
        finally:
            materialiser.stop()
    if materialiser.failure is not None:
        raise ServiceUnavailableError(f"the view stopped: {materialiser.failure}") from materialiser.failure
