"""A guard before the policy server: requests need its token, and web pages of other origins get no answer."""

from __future__ import annotations

from pydantic_core import to_json
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from lightstream.runtime.http.access import Access, bearer_token, own_names
from lightstream.runtime.http.door import Door
from lightstream.runtime.settings import Settings

from .responses import error_body

__all__ = ["guard"]

OPEN_PATH = "/healthz"
NEEDS_TOKEN = "the policy server needs a token: send LIGHTSTREAM_POLICY_TOKEN as the bearer token"


def guard(settings: Settings) -> list[Middleware]:
    """Middleware that refuses requests without ``settings.policy_token``, of foreign pages or not of JSON."""
    token = settings.policy_token
    tokens = [] if token is None else [token.get_secret_value()]
    access = Access(*tokens, names=own_names(settings))
    access.warn_where_open(settings.host, "policy server", "LIGHTSTREAM_POLICY_TOKEN")
    return [Middleware(_Tokens, access=access), Middleware(Door, access=access, refuse=_error)]


class _Tokens:
    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app: ASGIApp = self._app
        is_guarded = scope["type"] == "http" and scope["path"] != OPEN_PATH
        if is_guarded and not self._access.allows(bearer_token(Headers(scope=scope))):
            app = _error(401, NEEDS_TOKEN)
        await app(scope, receive, send)


def _error(status: int, message: str) -> Response:
    code = "invalid_api_key" if status == 401 else None
    return Response(to_json(error_body(message, status=status, code=code)), status, media_type="application/json")
