"""Who may use the proxy. Pure."""

from __future__ import annotations

import hmac
from collections.abc import Mapping

from lightstream.schemas.settings import Settings

__all__ = ["Access"]


class Access:
    """The token that requests must carry, if the settings name one: as clients send their API key.

    OpenAI's clients send ``authorization: Bearer …``, Anthropic's ``x-api-key: …`` or the former.
    """

    def __init__(self, settings: Settings) -> None:
        self._token = None if settings.proxy_token is None else settings.proxy_token.get_secret_value().encode()

    @property
    def is_open(self) -> bool:
        """Whether anyone may ask."""
        return self._token is None

    def allows(self, headers: Mapping[str, str]) -> bool:
        """Whether a request with these headers may be answered."""
        if self._token is None:
            return True
        scheme, _, bearer = headers.get("authorization", "").strip().partition(" ")
        said = [bearer.strip() if scheme.lower() == "bearer" else "", headers.get("x-api-key", "").strip()]
        return any(hmac.compare_digest(one.encode("utf-8", "replace"), self._token) for one in said)
