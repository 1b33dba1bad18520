"""TLS of our servers and of the clients of ours that ask them: PEM files that are read again when they change.

A server's certificate is tried before it serves, by a handshake in memory: what a client would say of it, its date, its
key or its name, is known at the start. One that replaces it is tried too; where it fails, the former one stays.
"""

from __future__ import annotations

import ipaddress
import logging
import socket
import ssl
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from lightstream.schemas.errors import SettingsError

from .listening import url_of
from .settings import Settings

logger = logging.getLogger(__name__)

CERTIFICATE, KEY, CA, CLIENT_CA = (f"LIGHTSTREAM_TLS_{name}_FILE" for name in ("CERTIFICATE", "KEY", "CA", "CLIENT_CA"))

EXPIRED, NOT_YET_VALID, OTHER_HOST, OTHER_EMAIL, OTHER_ADDRESS = 10, 9, 62, 63, 64
UNKNOWN_AUTHORITY = frozenset({2, 18, 19, 20, 21})
"""OpenSSL's numbers of what is wrong with a certificate (``X509_V_ERR_…`` in ``x509_vfy.h``)."""


class _RereadContext(ssl.SSLContext):
    """Stands for a context that is made again, before a handshake, when one of its files has changed.

    asyncio, uvloop, http.client, httpx and aiohttp take it for a context of its kind and make connections by the two
    methods below. Connections that are open keep what they began with. For any thread.

    Args:
        protocol: client or server, as :class:`ssl.SSLContext` has it.
        make: reads the files.
        now: make it at once, rather than before the first handshake.

    Raises:
        SettingsError: from ``make``.
    """

    def __new__(cls, protocol: int, *_: Any, **__: Any) -> Self:
        return super().__new__(cls, protocol)

    def __init__(
        self, protocol: int, make: Callable[[], ssl.SSLContext], files: Sequence[Path], *, now: bool = False
    ) -> None:
        self._make = make
        self._files = files
        self._reading = threading.Lock()
        self._known_version: object = None
        self._context: ssl.SSLContext | None = None
        if now:
            self._current()

    def wrap_bio(self, *arguments: Any, **options: Any) -> ssl.SSLObject:
        return self._current().wrap_bio(*arguments, **options)

    def wrap_socket(self, *arguments: Any, **options: Any) -> ssl.SSLSocket:
        return self._current().wrap_socket(*arguments, **options)

    def _current(self) -> ssl.SSLContext:
        with self._reading:
            version = [_version(file) for file in self._files]
            if self._context is not None and version == self._known_version:
                return self._context
            before, self._known_version = self._context, version
            names = ", ".join(map(str, self._files))
            try:
                self._context = self._make()
            except SettingsError as error:
                if before is None:
                    self._known_version = None
                    raise
                logger.error("%s was changed and cannot be used, so what was there before holds: %s", names, error)
                return before
            if before is not None:
                logger.warning("%s was read again", names)
            return self._context


@dataclass(frozen=True, slots=True)
class Certificate:
    """The facts that a server's certificate states.

    Attributes:
        names: DNS names that it is for, in its order; those with ``*`` too.
        addresses: IP addresses that it is for.
        expires_s: Unix time of its end.
    """

    names: tuple[str, ...]
    addresses: tuple[str, ...]
    expires_s: float

    def is_for(self, host: str) -> bool:
        """Whether clients take it for this name or address."""
        try:
            return ipaddress.ip_address(host) in map(ipaddress.ip_address, self.addresses)
        except ValueError:
            parent = host.lower().partition(".")[2]
            return {host.lower(), f"*.{parent}"} & {name.lower() for name in self.names} != set()


def server_context(settings: Settings, *, alpn: Sequence[str] = ()) -> ssl.SSLContext | None:
    """The TLS context of our servers; ``None`` where no certificate is set.

    Args:
        alpn: protocols that it speaks, where clients insist on choosing one (``h2`` for gRPC).

    Raises:
        SettingsError: a file cannot be read or is none of its kind, the key is another certificate's, or the
            certificate is not valid today.
    """
    if settings.tls_certificate_file is None:
        if settings.tls_key_file is not None or settings.tls_client_ca_file is not None:
            given = KEY if settings.tls_key_file is not None else CLIENT_CA
            raise SettingsError(f"{given} is set, and {CERTIFICATE} is not.", next_step=f"Set {CERTIFICATE} as well.")
        return None

    def make() -> ssl.SSLContext:
        read_certificate(settings)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        _load_chain(context, settings)
        if settings.tls_client_ca_file is not None:
            _trust(context, CLIENT_CA, settings.tls_client_ca_file)
            context.verify_mode = ssl.CERT_REQUIRED
        if alpn:
            context.set_alpn_protocols(list(alpn))
        return context

    files = (settings.tls_certificate_file, settings.tls_key_file, settings.tls_client_ca_file)
    return _RereadContext(ssl.PROTOCOL_TLS_SERVER, make, [file for file in files if file is not None], now=True)


def client_context(settings: Settings) -> ssl.SSLContext:
    """The authorities that our clients check servers with: the system's and the file of ``tls_ca_file``.

    Where servers ask for a certificate (``tls_client_ca_file``), ours is shown. Files are read before the first
    handshake, so this costs nothing where no address is https.

    Raises:
        SettingsError: at a handshake, where a file cannot be used.
    """

    def make() -> ssl.SSLContext:
        context = ssl.create_default_context()
        if settings.tls_ca_file is not None:
            _trust(context, CA, settings.tls_ca_file)
        if is_mutual:
            _load_chain(context, settings)
        return context

    is_mutual = settings.tls_client_ca_file is not None and settings.tls_certificate_file is not None
    files = [settings.tls_ca_file, *((settings.tls_certificate_file, settings.tls_key_file) if is_mutual else ())]
    return _RereadContext(ssl.PROTOCOL_TLS_CLIENT, make, [file for file in files if file is not None])


def server_url(settings: Settings, listener: socket.socket) -> str:
    """As :func:`lightstream.runtime.listening.url_of`, of a server of ours: https where it has a certificate.

    A certificate that is not for the socket's address is mostly for this machine's name, which then takes its place.
    """
    url = url_of(listener)
    certificate = read_certificate(settings)
    if certificate is None:
        return url
    address, _, port = url.removeprefix("http://").rpartition(":")
    host = address.strip("[]")
    if not certificate.is_for(host):
        name = next((name for name in (settings.host, *certificate.names) if _is_name_of(certificate, name)), None)
        if name is None:
            logger.warning(
                "%s is for %s, and not for %s, at which this server listens: its clients will refuse it, unless "
                "they ask under such a name (LIGHTSTREAM_VIEW_URL and its like)",
                settings.tls_certificate_file,
                ", ".join((*certificate.names, *certificate.addresses)) or "no name",
                host,
            )
        address = name or address
    return f"https://{address}:{port}"


def _is_name_of(certificate: Certificate, name: str) -> bool:
    return "*" not in name and certificate.is_for(name)


def read_certificate(settings: Settings) -> Certificate | None:
    """The facts of our servers' certificate; ``None`` where none is set.

    Raises:
        SettingsError: as :func:`server_context`.
    """
    file = settings.tls_certificate_file
    if file is None:
        return None
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _load_chain(server, settings)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # the certificate itself is what is trusted
    client.load_verify_locations(file)
    try:
        found = _shown(server, client)
    except ssl.SSLCertVerificationError as error:
        problem = {EXPIRED: "has expired", NOT_YET_VALID: "is not valid yet"}.get(
            error.verify_code, f"is not one for servers: {error.verify_message}"
        )
        raise SettingsError(
            f"{CERTIFICATE}, {file}, {problem}.", next_step="Put a valid one there, and correct the clock if it is off."
        ) from error
    named = found.get("subjectAltName", ())
    return Certificate(
        tuple(str(value) for kind, value in named if kind == "DNS"),
        tuple(str(value) for kind, value in named if kind == "IP Address"),
        ssl.cert_time_to_seconds(str(found["notAfter"])),
    )


def _shown(server: ssl.SSLContext, client: ssl.SSLContext) -> dict[str, Any]:
    """The certificate that a client accepts in a handshake with this server.

    Raises:
        ssl.SSLCertVerificationError: it accepts none.
    """
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (client.wrap_bio(to_client, to_server), server.wrap_bio(to_server, to_client, server_side=True))
    done = [False, False]
    while not all(done):
        for place, end in enumerate(ends):
            try:
                end.do_handshake()
                done[place] = True
            except ssl.SSLWantReadError:
                pass  # it is the other's turn
    return dict(ends[0].getpeercert() or {})


def certificate_problem(error: BaseException, url: str) -> SettingsError | None:
    """The fault of the certificate of the server at ``url``; ``None`` if ``error`` is about something else.

    Args:
        error: of httpx, aiohttp, urllib or ssl; its causes are looked through.
    """
    found = _of_certificates(error)
    if found is None:
        return None
    match found.verify_code:
        case number if number in UNKNOWN_AUTHORITY:
            problem = f"is of an authority that is not known here ({found.verify_message})"
            step = f"Name that authority's PEM file with {CA}."
        case number if number in (EXPIRED, NOT_YET_VALID):
            problem = "has expired" if number == EXPIRED else "is not valid yet"
            step = "Replace it there: the server reads it again. Or correct this machine's clock."
        case number if number in (OTHER_HOST, OTHER_EMAIL, OTHER_ADDRESS):
            problem = f"is for another host ({found.verify_message})"
            step = "Ask under a name that it has (LIGHTSTREAM_VIEW_URL and its like), or add this one to it."
        case _:
            problem, step = f"cannot be used: {found.verify_message}", "Replace it there."
    return SettingsError(f"the certificate of {url} {problem}.", next_step=step)


def _of_certificates(error: BaseException | None) -> ssl.SSLCertVerificationError | None:
    """What OpenSSL found, among an error and its causes. aiohttp has an error of that class without a number."""
    visited: list[BaseException] = []
    while error is not None and error not in visited:
        if isinstance(error, ssl.SSLCertVerificationError) and hasattr(error, "verify_code"):
            return error
        visited.append(error)
        reason = getattr(error, "reason", None)
        error = reason if isinstance(reason, BaseException) else error.__cause__ or error.__context__
    return None


def _load_chain(context: ssl.SSLContext, settings: Settings) -> None:
    certificate = settings.tls_certificate_file
    key = settings.tls_key_file or certificate
    if certificate is None or key is None:
        raise SettingsError(f"{CERTIFICATE} is not set.", next_step="Set it.")
    key_setting = CERTIFICATE if settings.tls_key_file is None else KEY
    step = "Correct it and try again."
    if b"-----BEGIN CERTIFICATE-----" not in _content(CERTIFICATE, certificate):
        raise SettingsError(f"{CERTIFICATE}, {certificate}, has no certificate in PEM.", next_step=step)
    text = _content(key_setting, key)
    if b"PRIVATE KEY-----" not in text:
        raise SettingsError(f"{key_setting}, {key}, has no private key in PEM.", next_step=f"Name it with {KEY}.")
    if b"ENCRYPTED" in text:
        step = "Give a file without one, which this user alone can read (mode 0600)."
        raise SettingsError(f"{key_setting}, {key}, has a password, which nobody could give.", next_step=step)
    try:
        context.load_cert_chain(certificate, key)
    except ssl.SSLError as error:
        if error.reason in ("KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH"):
            raise SettingsError(
                f"{key_setting}, {key}, is not the key of the certificate in {certificate}.", next_step=step
            ) from error
        raise SettingsError(
            f"{CERTIFICATE}, {certificate}, and its key, {key}, cannot be used: {error.reason or error}.",
            next_step=step,
        ) from error


def _trust(context: ssl.SSLContext, setting: str, file: Path) -> None:
    content = _content(setting, file)
    try:
        context.load_verify_locations(cadata=content.decode("utf-8"))
    except (ssl.SSLError, ValueError) as error:
        raise SettingsError(
            f"{setting}, {file}, has no certificates in PEM: {error}.", next_step="Correct it and try again."
        ) from error


def _content(setting: str, file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise SettingsError(
            f"{setting}, {file}, cannot be read: {error.strerror}.", next_step="Correct it and try again."
        ) from error


def _version(file: Path) -> object:
    try:
        found = file.stat()
    except OSError as error:
        return type(error)
    return found.st_mtime_ns, found.st_size, found.st_ino
