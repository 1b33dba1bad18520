"""The dashboard of a store in memory, at the address of the store's own server."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from anyio.to_thread import run_sync
from starlette.applications import Starlette
from starlette.types import ASGIApp, Receive, Scope, Send

from lightstream.runtime.http.access import access_of
from lightstream.runtime.http.own_tokens import token_of
from lightstream.runtime.settings import Settings

from ..materialiser.of_memory import MemoryMaterialiser
from ..stores.memory import InMemoryLightningStore
from .app import create_app
from .statement import QueryLimits

SQL_PATHS = tuple(
    f"/v1/{name}"
    for name in ("changes", "feedback", "named-queries", "positions", "queries", "reasons", "rollouts", "sql")
)


class MemoryDashboard:
    """Answers browsers and SQL as the view does. The tables are made when it is first asked.

    Args:
        store: the store that it shows. It stays the caller's.
        settings: name the token of the store's server, which is asked for here too.
    """

    def __init__(self, store: InMemoryLightningStore, settings: Settings) -> None:
        self._materialiser = MemoryMaterialiser(store)
        self._app = create_app(
            self._materialiser,
            QueryLimits(timeout_s_max=settings.view_timeout_s_max),
            self._lifespan,
            access_of(settings, token_of(settings, "store_token")),
        )

    def beside(self, store_app: ASGIApp) -> ASGIApp:
        """Return an application that answers the dashboard's requests, and leaves the rest to the store's."""

        async def both(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] == "http" and not _is_for_dashboard(scope):
                await store_app(scope, receive, send)
                return
            if scope["type"] == "http":
                await run_sync(self._materialiser.start)
            await self._app(scope, receive, send)

        return both

    def end_streams(self) -> None:
        """End the answers that last as long as the server. In its event loop."""
        self._app.state.changes.close()

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncGenerator[None]:
        yield
        await run_sync(self._materialiser.stop)


def _is_for_dashboard(scope: Scope) -> bool:
    path: str = scope["path"]
    if path.startswith("/v1/"):
        return any(path == own or path.startswith(f"{own}/") for own in SQL_PATHS)
    asks_for_page = any(name == b"accept" and b"text/html" in value for name, value in scope["headers"])
    return path.startswith("/assets/") or (scope["method"] in ("GET", "HEAD") and asks_for_page)
