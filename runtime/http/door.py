"""Refuses requests before a server reads them: foreign pages, bodies of other types, endless heads."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TypeAlias

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from .access import Access

JSON = "application/json"
HEADERS_MAX = 100

Refuse: TypeAlias = Callable[[int, str], ASGIApp]
"""Makes an error of the server's shape of a status and a message."""


class Door:
    """ASGI middleware before a server's application.

    A web page may send a request anywhere without asking (a "simple" one), and have its own name resolved to this
    machine. So the host must be ours, the origin that host, and a body JSON, which no page sends without asking.

    Args:
        access: knows the names of the server.
        refuse: makes the answer of a refusal: 403, 415 or 431.
        media_types: of bodies; ``None``: the application looks at them itself.
        origins: pages that may ask all the same (CORS); ``*`` for all.
        open_paths: answered whoever asks.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        access: Access,
        refuse: Refuse,
        media_types: Collection[str] | None = (JSON,),
        origins: Collection[str] = (),
        open_paths: Collection[str] = ("/healthz",),
    ) -> None:
        self._app = app
        self._access = access
        self._refuse = refuse
        self._media_types = media_types
        self._origins = frozenset(origins)
        self._open_paths = frozenset(open_paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Called by the server for each request."""
        refusal = None
        if scope["type"] == "http" and scope["path"] not in self._open_paths:
            refusal = self._refusal(scope["method"], Headers(scope=scope))
        await (refusal or self._app)(scope, receive, send)

    def _refusal(self, method: str, headers: Headers) -> ASGIApp | None:
        if len(headers) > HEADERS_MAX:
            return self._refuse(431, f"a request may have {HEADERS_MAX} headers; this one has {len(headers)}")
        origin = headers.get("origin")
        is_let_in = origin is not None and ("*" in self._origins or origin in self._origins)
        if not is_let_in and (foreign := self._access.foreign_page(headers)):
            return self._refuse(403, foreign)
        if self._media_types is None or method in ("GET", "HEAD", "OPTIONS", "DELETE"):
            return None
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind in self._media_types or kind.endswith("+json") or (not kind and not _is_of_page(headers)):
            return None
        return self._refuse(415, f"the body must be of the type {' or '.join(self._media_types)}, not {kind or 'none'}")


def _is_of_page(headers: Headers) -> bool:
    """Whether a browser sent it: it says so, however old it is, in one of these."""
    return "origin" in headers or "sec-fetch-site" in headers or "referer" in headers
