"""Headers and URL of a request: may it send, and which rollout does it name as a whole?"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from urllib.parse import unquote

from starlette.types import ASGIApp, Receive, Scope, Send

from lightstream.producers.attribution import BAGGAGE_HEADER, UNATTRIBUTED, Attribution, attribution_in_baggage
from lightstream.runtime.http.access import Access, access_of, bearer_token
from lightstream.runtime.http.headers import ATTEMPT_ID_HEADER, ROLLOUT_ID_HEADER
from lightstream.runtime.settings import Settings


def gateway_access(settings: Settings) -> Access:
    """The values of ``authorization`` that the settings accept: a bearer token, a name and password, both or none; and
    the tokens of a file."""
    accepted: list[str] = []
    if settings.gateway_token is not None:
        accepted.append(f"bearer {settings.gateway_token.get_secret_value()}")
    if settings.gateway_basic_auth is not None:
        pair = base64.b64encode(settings.gateway_basic_auth.get_secret_value().encode()).decode()
        accepted.append(f"basic {pair}")
    return access_of(settings, *accepted)


def authorizations_in(headers: Mapping[str, str]) -> tuple[str, ...]:
    """The value of ``authorization`` as it came and percent-decoded, each as :func:`gateway_access` has it, and the
    bearer tokens in both.

    Clients take it from ``OTEL_EXPORTER_OTLP_HEADERS``, where values are percent-encoded; not all of them decode it.
    """
    sent = headers.get("authorization", "")
    tokens = (bearer_token({"authorization": value}) for value in (sent, unquote(sent)))
    return _normal(sent), _normal(unquote(sent)), *tokens


def _normal(authorization: str) -> str:
    """With its scheme in lower case, as that is read in any (RFC 9110, 11.1)."""
    scheme, _, value = authorization.strip().partition(" ")
    return f"{scheme.lower()} {value.strip()}"


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
