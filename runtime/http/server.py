"""Runs ASGI applications: on any free or a named port, announced to other processes, and stopped cleanly.

Needs uvicorn and starlette, which the extras ``proxy``, ``gateway``, ``view`` and ``train`` bring; nothing that the
plain install uses imports this module.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import ssl
import threading
from collections.abc import Callable, Coroutine, Generator, Sequence
from functools import partial
from typing import Any, TypeVar

import uvicorn
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from lightstream.schemas.errors import LightstreamError, ServiceUnavailableError

from ..clock import SystemClock
from ..disk import DiskRoom
from ..health import Check, WithHealth
from ..listening import bind_listener
from ..metrics import Readings
from ..own_spans import OwnSpans
from ..services import Service, announce, withdraw
from ..settings import Settings
from ..tls import server_context, server_url
from .connections import LimitedConnection, close_overdue
from .handshakes import TlsListener
from .health_listener import HealthListener, LoopTurns

logger = logging.getLogger(__name__)

T = TypeVar("T")

DRAIN_TIMEOUT_S = 10
"""Longest that a stopping server waits for answers under way before it closes their connections."""

START_TIMEOUT_S = 60.0
SWEEP_TICKS = 20
"""Of uvicorn's, ten a second: so often connections are looked at whose clients keep us waiting."""

CLIENT_GONE = 499
"""The status, nginx's, of a request whose client disconnected before it had the answer."""


class BodyTooLargeError(LightstreamError):
    """A request's body is over the limit; the rest of it was not read."""


class ClientGoneError(LightstreamError):
    """The client closed its connection before it had the answer."""


async def unless_disconnected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """The result of ``work``, which is cancelled when the client of ``request`` disconnects first.

    The request's body must have been read. Work that ends in spite of its cancellation has a result all the same.

    Raises:
        ClientGoneError: the client disconnected.
    """
    task, disconnect = asyncio.ensure_future(work), asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait((task, disconnect), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            task.cancel()
            await asyncio.wait((task,))
        if task.cancelled():
            raise ClientGoneError("the client disconnected.")
        return task.result()
    finally:
        task.cancel()
        disconnect.cancel()


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def read_body(request: Request, limit_bytes: int) -> bytes:
    """The whole body of a request.

    Raises:
        BodyTooLargeError: it is, or says that it is, longer than ``limit_bytes``.
        ClientGoneError: the client disconnected before it had sent all.
    """
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > limit_bytes:
        raise BodyTooLargeError(f"the request has {int(announced):,} bytes; at most {limit_bytes:,} are accepted.")
    pieces: list[bytes] = []
    size_bytes = 0
    try:
        async for piece in request.stream():
            size_bytes += len(piece)
            if size_bytes > limit_bytes:
                raise BodyTooLargeError(f"the request has over {limit_bytes:,} bytes, the most that are accepted.")
            pieces.append(piece)
    except ClientDisconnect:
        raise ClientGoneError("the client disconnected.") from None
    return b"".join(pieces)


async def client_gone(_request: Request, _error: Exception) -> Response:
    """Answer for an application's ``exception_handlers``: nobody reads it, and it is no error."""
    return Response(status_code=CLIENT_GONE)


class HttpServer:
    """One HTTP server of this process.

    Args:
        app: the ASGI application; its lifespan runs before the first and after the last request.
        settings: names the address to listen on and the data folder to announce in.
        name: what it is announced as (see :mod:`lightstream.runtime.services`).
        port: 0 for any free one.
        setting: the setting that names the port, for messages.
        listener: a socket that listens already, in place of ``port``. It is closed at the end.
        announced: whether others find it by its name, unless another process has that name. One that is has a port
            for its health alone, too, which a busy event loop does not keep from answering.
        on_stopping: called in the server's loop when it begins to stop, before answers under way are waited for.
        alive, ready, metrics: what ``/healthz``, ``/readyz`` and ``/metrics`` ask
            (:mod:`lightstream.runtime.health`).

    Raises:
        ServiceUnavailableError: the port is taken; nothing was announced.
        SettingsError: the certificate of the settings, or its key, cannot be used.
    """

    def __init__(
        self,
        app: Any,
        settings: Settings,
        *,
        name: str,
        port: int = 0,
        setting: str = "",
        listener: socket.socket | None = None,
        announced: bool = True,
        on_stopping: Callable[[], None] | None = None,
        alive: Check | None = None,
        ready: Sequence[Check] = (),
        metrics: Sequence[Readings] = (),
    ) -> None:
        self._settings = settings
        self._name = name
        context = server_context(settings)
        self._socket = listener or bind_listener(settings.host, port, setting)
        self.url = server_url(settings, self._socket)
        metrics = [DiskRoom(settings).readings, *metrics]
        self._spans = OwnSpans.of(settings, name)
        self._health = HealthListener(name, [] if alive is None else [alive], ready, metrics) if announced else None
        config = _Config(
            context,
            WithHealth(app, name=name, alive=alive, ready=ready, metrics=metrics, spans=self._spans),
            http=LimitedConnection,
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=DRAIN_TIMEOUT_S,
            timeout_keep_alive=75,
            lifespan="on",
        )
        self._is_announced = announced
        self._server = _AnnouncedServer(config, self._announce if announced else None, on_stopping)
        self._thread: threading.Thread | None = None
        self._failure: LightstreamError | None = None

    def run(self) -> None:
        """Serve until SIGTERM, SIGINT or :meth:`stop`. Answers under way are finished first.

        Raises:
            ServiceUnavailableError: the application did not start.
            LightstreamError: what :meth:`fail` was called with.
        """
        try:
            self._server.run(sockets=[self._socket])
        finally:
            if self._is_announced:
                withdraw(self._settings, self._name, os.getpid())
            self._let_go()
        if self._failure is not None:
            raise self._failure
        if not self._server.started:
            raise ServiceUnavailableError(f"the {self._name} server did not start; its log says why.")

    def start(self) -> str:
        """Serve in a thread of its own; returns the URL once requests are taken.

        Raises:
            ServiceUnavailableError: the application did not start.
        """
        self._thread = threading.Thread(target=self.run, name=f"lightstream-{self._name}", daemon=True)
        self._thread.start()
        if not self._server.announced.wait(START_TIMEOUT_S) or not self._server.started:
            raise ServiceUnavailableError(f"the {self._name} server did not start; its log says why.")
        return self.url

    @property
    def is_serving(self) -> bool:
        """True once :meth:`start` began it, until it ends."""
        return self._thread is not None and self._thread.is_alive() and not self._server.should_exit

    def stop(self, timeout_s: float = DRAIN_TIMEOUT_S + 5) -> None:
        """Stop and wait until it has. One that never started lets go of its port."""
        self._server.should_exit = True
        if self._thread is not None:
            self._thread.join(timeout_s)
        elif not self._server.started:
            self._let_go()

    def fail(self, error: LightstreamError) -> None:
        """End, as :meth:`stop` does, but without waiting; :meth:`run` raises ``error`` then. On any thread."""
        self._failure = self._failure or error
        self._server.should_exit = True

    def _let_go(self) -> None:
        if self._spans is not None:
            self._spans.close()
        if self._health is not None:
            self._health.stop()
        self._socket.close()

    def _announce(self) -> None:
        health = ""
        if self._health is not None:
            self._health.start(LoopTurns(asyncio.get_running_loop()))
            health = self._health.url
        service = Service(self._name, self.url, os.getpid(), SystemClock().now_unix_nano(), health=health)
        self._is_announced = announce(self._settings, service)
        if not self._is_announced:
            logger.warning(
                "another %s runs with the data folder %s and keeps its name; this one is reached at %s alone",
                self._name,
                self._settings.data_dir,
                self.url,
            )


class _Config(uvicorn.Config):
    """Uvicorn's, with a TLS context that is made already."""

    def __init__(self, context: ssl.SSLContext | None, app: Any, **options: Any) -> None:
        super().__init__(app, **options)
        self._context = context

    def load(self) -> None:
        super().load()
        self.ssl = self._context


class _AnnouncedServer(uvicorn.Server):
    """Uvicorn, but announced once it listens, and ended by a signal with exit status 0."""

    def __init__(
        self, config: uvicorn.Config, on_started: Callable[[], None] | None, on_stopping: Callable[[], None] | None
    ) -> None:
        super().__init__(config)
        self._on_started = on_started
        self._on_stopping = on_stopping
        self.announced = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            if self.config.ssl is None:
                await super().startup(sockets)
            else:
                await super().startup([])
                make = partial(self._connection, asyncio.get_running_loop())
                self.servers: list[Any] = [TlsListener(one, make, self.config.ssl) for one in sockets or ()]
            if self.started and self._on_started is not None:
                self._on_started()
        finally:
            self.announced.set()

    def _connection(self, loop: asyncio.AbstractEventLoop) -> Any:
        """A connection's protocol, as uvicorn makes it."""
        make: Any = self.config.http_protocol_class
        return make(config=self.config, server_state=self.server_state, app_state=self.lifespan.state, _loop=loop)

    async def on_tick(self, counter: int) -> bool:
        if counter % SWEEP_TICKS == 0:
            close_overdue(self.server_state.connections, asyncio.get_running_loop().time())
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._on_stopping is not None:
            self._on_stopping()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        if threading.current_thread() is threading.main_thread():
            loop = asyncio.get_running_loop()
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, self.handle_exit, number, None)
        yield
