"""Headers and URL of a request: may it send, and which rollout does it name as a whole?"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Mapping
from urllib.parse import unquote

from starlette.types import ASGIApp, Receive, Scope, Send

from lightstream.producers.attribution import BAGGAGE_HEADER, UNATTRIBUTED, Attribution, attribution_in_baggage
from lightstream.runtime.http_headers import ATTEMPT_ID_HEADER, ROLLOUT_ID_HEADER
from lightstream.runtime.settings import Settings

__all__ = ["PATH_ATTRIBUTION", "Access", "RolloutPath", "attribution_of_request"]


class Access:
    """Checks a request's ``authorization``: a bearer token or a name and password, if the settings name any.

    Clients take these from ``OTEL_EXPORTER_OTLP_HEADERS``, where values are percent-encoded; those that do not decode
    them are understood too.
    """

    def __init__(self, settings: Settings) -> None:
        self._wanted: list[bytes] = []
        if settings.gateway_token is not None:
            self._wanted.append(f"bearer {settings.gateway_token.get_secret_value()}".encode())
        if settings.gateway_basic_auth is not None:
            pair = base64.b64encode(settings.gateway_basic_auth.get_secret_value().encode()).decode()
            self._wanted.append(f"basic {pair}".encode())

    @property
    def is_open(self) -> bool:
        """True where no authorization is required."""
        return not self._wanted

    def allows(self, authorization: str | None) -> bool:
        """True if this header is a required one."""
        if not self._wanted:
            return True
        if not authorization:
            return False
        sent = [_normal(authorization), _normal(unquote(authorization))]
        return any(hmac.compare_digest(one, wanted) for one in sent for wanted in self._wanted)


def _normal(authorization: str) -> bytes:
    """With its scheme in lower case, as that is read in any (RFC 9110, 11.1)."""
    scheme, _, value = authorization.strip().partition(" ")
    return f"{scheme.lower()} {value.strip()}".encode("utf-8", "replace")


PATH_ATTRIBUTION = "lightstream.attribution"
"""Key of the ASGI scope under which :class:`RolloutPath` puts the attribution."""

PREFIX_SEGMENTS = 5
"""Of ``/rollout/<id>/attempt/<id>``, counting the empty one before the first slash."""


class RolloutPath:
    """ASGI middleware that takes ``/rollout/<id>/attempt/<id>`` off the path. Ids are percent-encoded."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].startswith("/rollout/"):
            segments = scope["raw_path"].decode("ascii", "replace").split("/")
            if len(segments) > PREFIX_SEGMENTS and segments[3] == "attempt" and segments[2]:
                rest = "/" + "/".join(segments[PREFIX_SEGMENTS:])
                attribution = Attribution(unquote(segments[2]), unquote(segments[4]) or None)
                scope = {**scope, "path": unquote(rest), "raw_path": rest.encode(), PATH_ATTRIBUTION: attribution}
        await self._app(scope, receive, send)


def attribution_of_request(in_path: Attribution, headers: Mapping[str, str]) -> Attribution:
    """The attribution of a whole request; its spans and their resources may name another, and go first.

    Args:
        in_path: whom its URL names.
        headers: by lower-case name; ``OTEL_EXPORTER_OTLP_HEADERS`` sets them for a whole process.
    """
    if in_path is not UNATTRIBUTED:
        return in_path
    rollout_id = headers.get(ROLLOUT_ID_HEADER)
    if rollout_id:
        return Attribution(rollout_id, headers.get(ATTEMPT_ID_HEADER) or None)
    baggage = headers.get(BAGGAGE_HEADER)
    return attribution_in_baggage(baggage) if baggage else UNATTRIBUTED
