"""Checks the tokens that requests carry."""

from __future__ import annotations

import hmac
import ipaddress
import logging
from collections.abc import Mapping
from urllib.parse import urlsplit

from .listening import is_loopback

__all__ = ["Access", "bearer_token", "foreign_page"]

logger = logging.getLogger(__name__)


class Access:
    """Decides whether a request may be answered.

    Args:
        accepted: tokens, of which a request must carry one; without any, every request is allowed.
    """

    def __init__(self, *accepted: str) -> None:
        self._accepted = [token.encode() for token in accepted]

    @property
    def is_open(self) -> bool:
        """True where no token is required."""
        return not self._accepted

    def allows(self, *sent: str) -> bool:
        """True if one of the tokens that were sent is accepted. How long the comparison takes tells nothing of them.

        A header's bytes may have been decoded as UTF-8 or, as Starlette does, as Latin-1.
        """
        received = [token.encode(encoding, "replace") for token in sent for encoding in ("utf-8", "latin-1")]
        return self.is_open or any(hmac.compare_digest(one, token) for one in received for token in self._accepted)

    def warn_where_open(self, host: str, server: str, setting: str) -> None:
        """Log a warning if other machines reach ``host`` and no token is required.

        Args:
            server: the server in words.
            setting: the setting that names a token.
        """
        if self.is_open and not is_loopback(host):
            logger.warning("the %s on %s answers anyone: set %s", server, host, setting)


def bearer_token(headers: Mapping[str, str]) -> str:
    """The bearer token in ``authorization``, or an empty text."""
    scheme, _, token = headers.get("authorization", "").strip().partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def foreign_page(headers: Mapping[str, str]) -> str | None:
    """Say why a request comes from a web page that is not the server's own; ``None`` if it does not.

    A browser names the page's origin. It must be the host that the request is for; and that must be named by an address
    or a name without dots, since a page of any other name can have its name resolved to this machine (DNS rebinding).
    """
    origin = headers.get("origin")
    if origin is None:
        return None
    host = headers.get("host", "")
    if urlsplit(origin).netloc.lower() != host.lower():
        return f"a page of {origin} may not ask {host}"
    name = urlsplit(f"//{host}").hostname or ""
    return None if "." not in name or _is_address(name) else f"pages may not ask under the name {name}"


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
