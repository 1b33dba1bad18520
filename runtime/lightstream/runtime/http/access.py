"""Checks the tokens that requests carry, and the hosts that they are for."""

from __future__ import annotations

import hmac
import ipaddress
import logging
import socket
from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

from ..listening import is_loopback
from ..settings import Settings

__all__ = ["Access", "bearer_token", "own_names"]

logger = logging.getLogger(__name__)

PRIVATE = (".internal", ".local", ".localhost")
"""Ends of names that nobody can register, as containers and clusters have them (RFC 6761, RFC 6762, ICANN 2024)."""


class Access:
    """Decides whether a request may be answered.

    Args:
        accepted: tokens, of which a request must carry one; without any, every request is allowed.
        names: of the server, beside those without dots, under which :meth:`foreign_page` lets it be asked.
    """

    def __init__(self, *accepted: str, names: Iterable[str] = ()) -> None:
        self._accepted = [token.encode() for token in accepted]
        self._names = frozenset(names)

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

    def foreign_page(self, headers: Mapping[str, str]) -> str | None:
        """Say why a request may come from a web page that is not the server's own; ``None`` if it does not.

        A browser names the page's origin, but not where a page reads from its own host. The origin must be the host
        that the request is for; and that must be an address, a name without dots, a private one or one of the server's,
        since a page of any other name can have its name resolved to this machine (DNS rebinding). A request without
        an origin and with a token comes from no such page.
        """
        host, origin = headers.get("host", ""), headers.get("origin")
        if origin is not None and origin.lower().partition("://")[2] != host.lower():
            return f"a page of {origin} may not ask {host}"
        if origin is None and not self.is_open:
            return None
        name = _name_in(host)
        if name is not None and ("." not in name or name in self._names or name.endswith(PRIVATE) or _is_address(name)):
            return None
        return f"{name or host} is not a name of this server; if it is to be one, add it to LIGHTSTREAM_ALLOWED_HOSTS"

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


def own_names(settings: Settings) -> frozenset[str]:
    """Names under which this machine's servers are asked: its own, those in settings, and the allowed ones."""
    urls = (settings.view_url, settings.proxy_url, settings.store_url, settings.gateway_url)
    hosts = [socket.gethostname(), settings.host, *settings.allowed_hosts.split(",")]
    hosts += [url.partition("://")[2] for url in urls if url is not None]
    return frozenset(name for host in hosts if (name := _name_in(host.strip())))


def _name_in(host: str) -> str | None:
    """The name or address in ``name:port``; ``None`` where it cannot be told."""
    try:
        return (urlsplit(f"//{host}").hostname or "").removesuffix(".")
    except ValueError:
        return None


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
