"""Whom a request names as a whole: by its URL, its headers, or its baggage."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import unquote

from starlette.types import ASGIApp, Receive, Scope, Send

from lightstream.schemas.http_headers import ATTEMPT_ID_HEADER, ROLLOUT_ID_HEADER

from ...ownership import BAGGAGE_HEADER, NOBODY, Owner, owner_in_baggage

__all__ = ["PATH_OWNER", "RolloutPath", "owner_of_request"]

PATH_OWNER = "lightstream.owner"
"""Where :class:`RolloutPath` puts the owner in the ASGI scope."""

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
                owner = Owner(unquote(segments[2]), unquote(segments[4]) or None)
                scope = {**scope, "path": unquote(rest), "raw_path": rest.encode(), PATH_OWNER: owner}
        await self._app(scope, receive, send)


def owner_of_request(in_path: Owner, headers: Mapping[str, str]) -> Owner:
    """Whom a request names; its spans and their resources may say otherwise, and go first.

    Args:
        in_path: whom its URL names.
        headers: by lower-case name; ``OTEL_EXPORTER_OTLP_HEADERS`` sets them for a whole process.
    """
    if in_path is not NOBODY:
        return in_path
    rollout_id = headers.get(ROLLOUT_ID_HEADER)
    if rollout_id:
        return Owner(rollout_id, headers.get(ATTEMPT_ID_HEADER) or None)
    baggage = headers.get(BAGGAGE_HEADER)
    return owner_in_baggage(baggage) if baggage else NOBODY
