"""Checks the tokens that requests carry, and the hosts that they are for."""

from __future__ import annotations

import hmac
import ipaddress
import logging
import socket
from collections.abc import Collection, Iterable, Mapping
from urllib.parse import urlsplit

from lightstream.schemas.errors import SettingsError

from ..listening import is_loopback
from ..settings import Settings
from ..tls import read_certificate
from .tokens import TokensFile

logger = logging.getLogger(__name__)

PRIVATE = (".internal", ".local", ".localhost")
"""Ends of names that nobody can register, as containers and clusters have them (RFC 6761, RFC 6762, ICANN 2024)."""


class Access:
    """Decides whether a request may be answered.

    Args:
        accepted: tokens, of which a request must carry one. Whoever has one may do all that the server does.
        tokens: further ones, each with its scopes. Without any token, every request is allowed.
        names: of the server, beside those without dots, under which :meth:`foreign_page` lets it be asked.
    """

    def __init__(self, *accepted: str, names: Iterable[str] = (), tokens: TokensFile | None = None) -> None:
        self._accepted = [token.encode() for token in accepted]
        self._tokens = tokens
        self._names = frozenset(names)

    @property
    def is_open(self) -> bool:
        """True where no token is required."""
        return not self._accepted and self._tokens is None

    def refusal(self, *sent: str, scopes: Collection[str]) -> int | None:
        """The HTTP status that refuses a request with these tokens; ``None`` where it is allowed.

        A header's bytes may have been decoded as UTF-8 or, as Starlette does, as Latin-1.

        Args:
            scopes: of which a token of the file needs one.

        Returns:
            401: no token that holds. 403: one that holds, without such a scope.
        """
        received = [token.encode(encoding, "replace") for token in sent for encoding in ("utf-8", "latin-1")]
        if self.is_open or any(hmac.compare_digest(one, token) for one in received for token in self._accepted):
            return None
        granted = [self._tokens.scopes_of(one) for one in received] if self._tokens is not None else []
        if any(not rights.isdisjoint(scopes) for rights in granted if rights is not None):
            return None
        return 401 if all(rights is None for rights in granted) else 403

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

    def require_token(self, settings: Settings, server: str, setting: str) -> None:
        """Refuse to listen where other machines reach us and no token is required, unless the settings allow that.

        TLS alone lets anyone in; with clients' certificates it does not (``tls_client_ca_file``). A token that goes
        over the network without TLS is warned of.

        Args:
            server: the server in words.
            setting: the setting that names a token.

        Raises:
            SettingsError: it would answer anyone.
        """
        if is_loopback(settings.host) or settings.open_to_network or settings.tls_client_ca_file is not None:
            return
        if self.is_open:
            raise SettingsError(
                f"the {server} would answer anyone who reaches {settings.host}.",
                next_step=f"Set {setting} or LIGHTSTREAM_TOKENS_FILE; or LIGHTSTREAM_OPEN_TO_NETWORK=true, if only "
                "permitted clients reach it.",
            )
        if settings.tls_certificate_file is None:
            logger.warning(
                "the %s at %s speaks no TLS: whoever is between it and a client can read the tokens "
                "(LIGHTSTREAM_TLS_CERTIFICATE_FILE)",
                server,
                settings.host,
            )


def bearer_token(headers: Mapping[str, str]) -> str:
    """The bearer token in ``authorization``, or an empty text."""
    scheme, _, token = headers.get("authorization", "").strip().partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def access_of(settings: Settings, *accepted: str | None) -> Access:
    """Access by these tokens (``None`` is none) and by the settings' file, under this machine's names.

    Raises:
        SettingsError: the file has a mistake.
    """
    tokens = None if settings.tokens_file is None else TokensFile(settings.tokens_file)
    return Access(*filter(None, accepted), names=own_names(settings), tokens=tokens)


def own_names(settings: Settings) -> frozenset[str]:
    """Host names of this machine's servers: its own, the names in settings, and the allowed ones.

    Those of the certificate too: to a browser that asks for another name, nobody here can show one.

    Raises:
        SettingsError: the certificate cannot be used.
    """
    urls = (settings.view_url, settings.proxy_url, settings.store_url, settings.gateway_url)
    hosts = [socket.gethostname(), settings.host, *settings.allowed_hosts.split(",")]
    certificate = read_certificate(settings)
    hosts += [] if certificate is None else certificate.names
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
