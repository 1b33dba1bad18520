"""The store server as an object of one's own process, and as a process."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections.abc import Sequence

from lightstream.schemas.errors import StoreError
from lightstream.schemas.http_server import HttpServer
from lightstream.schemas.interfaces import LightningStore
from lightstream.schemas.settings import Settings

from ..kafka import KafkaLightningStore
from ._forwarding import ForwardingStore
from .app import create_app

__all__ = ["LightningStoreServer", "run"]

logger = logging.getLogger(__name__)

SERVICE = "store"
SETTING = "LIGHTSTREAM_STORE_PORT"


class LightningStoreServer(ForwardingStore):
    """Serves a store over HTTP from a thread of this process; is itself that store to whoever calls it here.

    The store stays the caller's: it is neither started nor closed. Announced as ``store`` while it serves.

    Args:
        store: safe for several tasks and threads.
        host, port: where to listen; by default as the settings say. Port 0 is any free one.
        settings: also name the token asked for and the largest request; by default those of the environment.
        cors_allow_origins: whose pages may ask from a browser, one or several; ``*`` for all, by default none.

    Raises:
        StoreError: the store is not safe for concurrent use.
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
    ) -> None:
        super().__init__(store)
        if not store.capabilities.get("async_safe") or not store.capabilities.get("thread_safe"):
            raise StoreError(f"{type(store).__name__} is not safe for several tasks and threads; it cannot be served.")
        settings = settings or Settings.load()
        origins = [cors_allow_origins] if isinstance(cors_allow_origins, str) else cors_allow_origins or ()
        self._http = _http_server(store, settings, host, port, origins)

    @property
    def endpoint(self) -> str:
        """URL of the server, without a path: what a client is given."""
        return self._http.url

    async def start(self) -> None:
        """Serve; returns once requests are taken. A server that was stopped does not start again.

        Raises:
            ServiceUnavailableError: it did not start; the log says why.
        """
        await asyncio.to_thread(self._http.start)

    async def stop(self) -> None:
        """Stop: waits under way are ended, whose clients ask the next server; other answers are finished."""
        await asyncio.to_thread(self._http.stop)

    async def close(self) -> None:
        """As :meth:`stop`."""
        await self.stop()


def run(settings: Settings) -> None:
    """Serve the store on Kafka until SIGTERM or SIGINT; blocks. Announces itself as ``store``.

    Raises:
        ServiceUnavailableError: Kafka does not answer, or the port is taken.
    """
    store = KafkaLightningStore(settings)
    asyncio.run(store.start())
    try:
        server = _http_server(store, settings, None, None)
        logger.info("the store answers on %s", server.url)
        server.run()
    finally:
        asyncio.run(store.close())


def _http_server(
    store: LightningStore,
    settings: Settings,
    host: str | None,
    port: int | None,
    cors_allow_origins: Sequence[str] = (),
) -> HttpServer:
    if host is not None:
        settings = settings.model_copy(update={"host": host})
    if settings.store_token is None and not _is_loopback(settings.host):
        logger.warning("the store server on %s asks for no token: set LIGHTSTREAM_STORE_TOKEN", settings.host)
    app = create_app(store, settings, cors_allow_origins=cors_allow_origins)
    return HttpServer(
        app,
        settings,
        name=SERVICE,
        port=settings.store_port if port is None else port,
        setting=SETTING,
        on_stopping=app.stop_waiting,
    )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
