"""Who may send. Pure."""

from __future__ import annotations

import base64
import hmac
from urllib.parse import unquote

from lightstream.schemas.settings import Settings

__all__ = ["Access"]


class Access:
    """What a request's ``authorization`` must be: a bearer token or a name and password, if the settings name any.

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
        """Whether anyone may send."""
        return not self._wanted

    def allows(self, authorization: str | None) -> bool:
        """Whether a request with this header may be taken."""
        if not self._wanted:
            return True
        if not authorization:
            return False
        said = [_normal(authorization), _normal(unquote(authorization))]
        return any(hmac.compare_digest(one, wanted) for one in said for wanted in self._wanted)


def _normal(authorization: str) -> bytes:
    """With its scheme in lower case, as that is read in any (RFC 9110, 11.1)."""
    scheme, _, value = authorization.strip().partition(" ")
    return f"{scheme.lower()} {value.strip()}".encode("utf-8", "replace")
