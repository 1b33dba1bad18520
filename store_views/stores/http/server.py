"""The store server as an object of one's own process, and as a process."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias
from urllib.parse import urlsplit

from starlette.types import ASGIApp

from lightstream.runtime.health import Check
from lightstream.runtime.http.server import HttpServer
from lightstream.runtime.kafka import KafkaContact
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import StoreError
from lightstream.schemas.interfaces import LightningStore
from lightstream.schemas.types import LightningStoreCapabilities
from lightstream.stream_processors.core.lifecycle import Limits

from ..forwarding import ForwardingStore
from ..kafka import KafkaLightningStore
from ..memory import InMemoryLightningStore
from ._wire import TRACES_PATH
from .app import TracesEndpoint, create_app, store_access

if TYPE_CHECKING:
    from .client import LightningStoreClient

logger = logging.getLogger(__name__)

SERVICE = "store"
SETTING = "LIGHTSTREAM_STORE_PORT"

MakeTraces: TypeAlias = "Callable[[LightningStore, Settings], TracesEndpoint]"
"""Makes what takes OTLP for a store. It comes from outside: decoding is the gateway's, which stores do not know."""


class Pages(Protocol):
    """Pages about a store, at the address of its server."""

    def beside(self, store_app: ASGIApp) -> ASGIApp:
        """Return the application that answers for both. Called once, by the server that is being made."""
        ...

    def end_streams(self) -> None:
        """End answers that last as long as the server. Called in its loop when it begins to stop; must not block."""
        ...


MakePages: TypeAlias = "Callable[[InMemoryLightningStore, Settings], Pages]"
"""Makes the pages of a store in memory. They come from outside: they are the view's, which stores do not know."""


class LightningStoreServer(ForwardingStore):
    """Serves a store over HTTP from a thread of this process; is itself that store to callers here.

    The store stays the caller's: it is neither started nor closed. Announced as ``store`` while it serves, unless
    another process has that name. In another process after a fork, and where it was unpickled, it is a client of the
    server, which goes on here.

    Args:
        store: safe for several tasks. One that is not safe for several threads is asked by the server's thread alone
            while it serves: this is a client of it then, here too.
        host, port: where to listen; by default as the settings say. Port 0 is any free one.
        settings: also name the token asked for and the largest request; by default those of the environment.
        cors_allow_origins: whose pages may ask from a browser, one or several; ``*`` for all, by default none.
        traces: makes, of the store and the settings, what takes OTLP at ``/v1/traces``; without it none is taken.
        pages: makes the pages at ``/`` where the store is one in memory; without it there are none.

    Raises:
        StoreError: the store is not safe for several tasks.
        ServiceUnavailableError: the port is taken.
    """

    def __init__(
        self,
        store: LightningStore,
        host: str | None = None,
        port: int | None = None,
        *,
        settings: Settings | None = None,
        cors_allow_origins: Sequence[str] | str | None = None,
        traces: MakeTraces | None = None,
        pages: MakePages | None = None,
    ) -> None:
        super().__init__(store)
        self._owner_pid: int | None = os.getpid()
        self._client: LightningStoreClient | None = None
        if not store.capabilities.get("async_safe"):
            raise StoreError(f"{type(store).__name__} is not safe for several tasks; it cannot be served.")
        self._is_thread_safe = store.capabilities.get("thread_safe", False)
        if not self._is_thread_safe:
            logger.warning(
                "%s is not safe for several threads: while it is served, use it through its server alone",
                type(store).__name__,
            )
        settings = settings or Settings.load()
        origins = [cors_allow_origins] if isinstance(cors_allow_origins, str) else cors_allow_origins or ()
        self._settings = settings
        self._takes_traces = traces is not None
        self._make_http = partial(
            _http_server, store, settings, host, cors_allow_origins=origins, traces=traces, pages=pages
        )
        self._http = self._make_http(port)
        self._stopped: Future[None] = Future()
        self.endpoint = self._http.url
        """URL of the server, without a path: what a client is given."""

    def __getstate__(self) -> dict[str, Any]:
        kept = ("_settings", "_takes_traces", "endpoint")
        return {name: self.__dict__[name] for name in kept} | {"_owner_pid": None, "_client": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._stopped = Future()

    @property
    def store(self) -> LightningStore:
        """The store; where this is not the server itself, or not in the one thread for the store, a client of it."""
        if os.getpid() == self._owner_pid and (self._is_thread_safe or not self._http.is_serving):
            return self._store
        if self._client is None:
            from .client import LightningStoreClient  # its HTTP client is in no extra that a server needs

            self._client = LightningStoreClient(self.endpoint, settings=self._settings)
        return self._client

    @property
    def capabilities(self) -> LightningStoreCapabilities:
        """The store's capabilities; and other processes share it through this server (``zero_copy``)."""
        capabilities = self.store.capabilities | LightningStoreCapabilities(zero_copy=True)
        return capabilities | LightningStoreCapabilities(otlp_traces=True) if self._takes_traces else capabilities

    def otlp_traces_endpoint(self) -> str:
        """URL of the OTLP traces: this server's if it takes them, else the store's."""
        return f"{self.endpoint}{TRACES_PATH}" if self._takes_traces else self.store.otlp_traces_endpoint()

    async def start(self) -> None:
        """Serve; returns once requests are taken. After a stop: again, at the same address.

        Nothing happens where it serves already, or where this is not the server itself.

        Raises:
            ServiceUnavailableError: it did not start; the log says why. Or its port was taken since it was stopped.
        """
        is_stopped = self._stopped.done()
        if os.getpid() == self._owner_pid and not self._http.is_serving:
            if is_stopped:
                self._http = self._make_http(urlsplit(self.endpoint).port)
            await asyncio.to_thread(self._http.start)
        if is_stopped:
            self._stopped = Future()

    async def run_forever(self) -> None:
        """As :meth:`start`, until :meth:`stop`; being cancelled stops it too."""
        await self.start()
        try:
            await asyncio.shield(asyncio.wrap_future(self._stopped))
        finally:
            await self.stop()

    async def stop(self) -> None:
        """Stop, from whichever loop: waits under way are ended, whose clients ask the next server; others are finished.

        Where this is not the server itself, only its own connections are closed.
        """
        if self._client is not None:
            await self._client.close()
            self._client = None
        if os.getpid() == self._owner_pid:
            await asyncio.to_thread(self._http.stop)
        with contextlib.suppress(InvalidStateError):  # it was stopped already
            self._stopped.set_result(None)

    async def close(self) -> None:
        """As :meth:`stop`."""
        await self.stop()


def run(
    settings: Settings,
    traces: MakeTraces | None = None,
    pages: MakePages | None = None,
    *,
    in_memory: bool = False,
    port: int | None = None,
) -> None:
    """Serve a store until SIGTERM or SIGINT; blocks. Announces itself as ``store``.

    Args:
        in_memory: one in memory, which is gone at the end and needs no Kafka, in place of the one on Kafka.
        port: where to listen; by default as the settings say.
        traces, pages: as for :class:`LightningStoreServer`.

    Raises:
        ServiceUnavailableError: Kafka does not answer, or the port is taken.
        SettingsError: it would answer anyone.
    """
    _require_token(settings)
    store: LightningStore
    ready: list[Check] = []
    if in_memory:
        store = InMemoryLightningStore(limits=Limits.of(settings))
    else:
        store = on_kafka = KafkaLightningStore(settings)
        asyncio.run(on_kafka.start())
        ready += [KafkaContact(settings), on_kafka.unready]
    try:
        server = _http_server(store, settings, None, port, traces=traces, pages=pages, ready=ready)
        logger.info("the store answers on %s", server.url)
        server.run()
    finally:
        asyncio.run(store.close())


def _require_token(settings: Settings) -> None:
    store_access(settings).require_token(settings, "store server", "LIGHTSTREAM_STORE_TOKEN")


def _http_server(
    store: LightningStore,
    settings: Settings,
    host: str | None,
    port: int | None,
    *,
    cors_allow_origins: Sequence[str] = (),
    traces: MakeTraces | None = None,
    pages: MakePages | None = None,
    ready: Sequence[Check] = (),
) -> HttpServer:
    if host is not None:
        settings = settings.model_copy(update={"host": host})
    _require_token(settings)
    endpoint = None if traces is None else traces(store, settings)
    app = create_app(store, settings, cors_allow_origins=cors_allow_origins, traces=endpoint)
    shown = pages(store, settings) if pages is not None and isinstance(store, InMemoryLightningStore) else None

    def stopping() -> None:
        app.state.serving.stopping.set()
        if shown is not None:
            shown.end_streams()

    return HttpServer(
        app if shown is None else shown.beside(app),
        settings,
        name=SERVICE,
        port=settings.store_port if port is None else port,
        setting=SETTING,
        on_stopping=stopping,
        ready=ready,
    )
