"""A guard before the policy server: requests need its token, and web pages of other origins get no answer."""

from __future__ import annotations

from pydantic_core import to_json
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from lightstream.runtime.http.access import Access, access_of, bearer_token
from lightstream.runtime.http.door import Door
from lightstream.runtime.http.errors import openai_error
from lightstream.runtime.http.own_tokens import token_of
from lightstream.runtime.http.tokens import INGEST, READ
from lightstream.runtime.settings import Settings

OPEN_PATH = "/healthz"
NEEDS_TOKEN = "the policy server needs a token: send LIGHTSTREAM_POLICY_TOKEN as the bearer token"


def guard(settings: Settings) -> list[Middleware]:
    """Middleware that refuses requests without a token that the settings name, of foreign pages or not of JSON.

    Raises:
        SettingsError: the server would answer anyone.
    """
    access = access_of(settings, token_of(settings, "policy_token"))
    access.require_token(settings, "policy server", "LIGHTSTREAM_POLICY_TOKEN")
    return [Middleware(_Tokens, access=access), Middleware(Door, access=access, refuse=_error)]


class _Tokens:
    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app: ASGIApp = self._app
        if scope["type"] == "http" and scope["path"] != OPEN_PATH:
            scopes = (INGEST, READ) if scope["method"] in ("GET", "HEAD") else (INGEST,)
            status = self._access.refusal(bearer_token(Headers(scope=scope)), scopes=scopes)
            if status is not None:
                needed = f"this needs a token with the scope {' or '.join(scopes)}"
                app = _error(status, needed if status == 403 else NEEDS_TOKEN)
        await app(scope, receive, send)


def _error(status: int, message: str) -> Response:
    return Response(to_json(openai_error(message, status=status)), status, media_type="application/json")
