"""A guard before the policy server: requests need its token, and web pages of other origins get no answer."""

from __future__ import annotations

from pydantic_core import to_json
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from lightstream.runtime.http.access import Access, bearer_token, own_names
from lightstream.runtime.settings import Settings

from .responses import error_body

__all__ = ["guard"]

OPEN_PATH = "/healthz"


def guard(settings: Settings) -> Middleware:
    """Middleware that refuses requests without ``settings.policy_token``, of foreign pages or not of JSON."""
    token = settings.policy_token
    tokens = [] if token is None else [token.get_secret_value()]
    access = Access(*tokens, names=own_names(settings))
    access.warn_where_open(settings.host, "policy server", "LIGHTSTREAM_POLICY_TOKEN")
    return Middleware(_Guard, access=access)


class _Guard:
    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = None
        if scope["type"] == "http" and scope["path"] != OPEN_PATH:
            refusal = self._refusal(scope["method"], Headers(scope=scope))
        await (refusal or self._app)(scope, receive, send)

    def _refusal(self, method: str, headers: Headers) -> Response | None:
        if not self._access.allows(bearer_token(headers)):
            return _error(401, "the policy server needs a token: send LIGHTSTREAM_POLICY_TOKEN as the bearer token")
        if foreign := self._access.foreign_page(headers):
            return _error(403, foreign)
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if method == "POST" and kind not in ("", "application/json"):
            return _error(415, f"the body must be of the type application/json, not {kind}")
        return None


def _error(status: int, message: str) -> Response:
    code = "invalid_api_key" if status == 401 else None
    return Response(to_json(error_body(message, status=status, code=code)), status, media_type="application/json")
