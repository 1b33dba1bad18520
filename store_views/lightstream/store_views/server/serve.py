"""The view as a process: materialiser and HTTP server."""

from __future__ import annotations

import gc
import logging
import os
import signal
import socket
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from types import FrameType

import uvicorn
from anyio.to_thread import run_sync
from starlette.applications import Starlette

from lightstream.schemas.errors import ServiceUnavailableError
from lightstream.schemas.services import Service, announce, withdraw
from lightstream.schemas.settings import Settings

from ..materialiser import Materialiser
from .app import create_app
from .query import QueryLimits

__all__ = ["run"]

logger = logging.getLogger(__name__)

SERVICE = "view"
SHOWN_AGAIN_S_MAX = 30.0
"""After a crash, until the view answers: reading a second's records again takes a fraction of that."""
GRACE_S = 5
"""How long queries under way may take to end when the server stops."""


class _Server(uvicorn.Server):
    """A uvicorn whose signals are ours: it would otherwise die of the signal before the file is closed."""

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


def run(settings: Settings, limits: QueryLimits | None = None) -> None:
    """Serve the view until SIGTERM or SIGINT; blocks. Announces itself as ``view``.

    Raises:
        ServiceUnavailableError: Kafka does not answer, the port is taken, another process owns the file, or the
            materialiser failed while it ran.
    """
    listener = _listen(settings)
    host, port = listener.getsockname()[:2]
    address = f"http://{host}:{port}"
    servers: list[_Server] = []

    def stop() -> None:
        for server in servers:
            server.should_exit = True

    def on_signal(number: int, frame: FrameType | None) -> None:
        stop()

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None, None]:
        await run_sync(materialiser.wait_until_shown, SHOWN_AGAIN_S_MAX)
        announce(settings, Service(SERVICE, address, os.getpid(), time.time_ns()))
        logger.info("the view answers on %s", address)
        yield
        withdraw(settings, SERVICE, os.getpid())

    _tune_garbage_collection()
    materialiser = Materialiser(settings, on_failure=stop)
    materialiser.start()
    try:
        app = create_app(materialiser, limits, lifespan)
        config = uvicorn.Config(app, log_level="warning", access_log=False, timeout_graceful_shutdown=GRACE_S)
        servers.append(_Server(config))
        previous = {number: signal.signal(number, on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            servers[0].run(sockets=[listener])
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
    finally:
        materialiser.stop()
        listener.close()
    if materialiser.failure is not None:
        raise ServiceUnavailableError(f"the view stopped: {materialiser.failure}") from materialiser.failure


def _tune_garbage_collection() -> None:
    """Look for cycles rarely: decoding makes tens of thousands of objects a second and no cycles among them.

    With Python's defaults a third of the decoding time went there.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(500_000, 20, 100)


def _listen(settings: Settings) -> socket.socket:
    try:
        return socket.create_server((settings.host, settings.view_port), backlog=256)
    except OSError as error:
        raise ServiceUnavailableError(
            f"the view cannot listen on {settings.host}:{settings.view_port}: {error.strerror}.",
            next_step="LIGHTSTREAM_VIEW_PORT names another port; 0 takes any.",
        ) from error
