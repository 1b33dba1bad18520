"""Sockets that listen, for our servers."""

from __future__ import annotations

import ipaddress
import socket

from lightstream.schemas.errors import ServiceUnavailableError

BACKLOG_CONNECTIONS = 2048
"""Connections the kernel keeps for us while the loop is busy: more than any burst of agents on one machine."""


_ELSEWHERE: dict[int, str] = {socket.AF_INET: "192.0.2.1", socket.AF_INET6: "2001:db8::1"}
"""Addresses that documentation may use, and nobody has: the way there is the way to anybody else."""

_LOOPBACK: dict[int, str] = {socket.AF_INET: "127.0.0.1", socket.AF_INET6: "::1"}


def url_of(listener: socket.socket) -> str:
    """``http://host:port`` of a socket that listens.

    One that listens on every address is told by this machine's own, at which others reach it as well.
    """
    host, port, *_ = listener.getsockname()
    if ipaddress.ip_address(host).is_unspecified:
        host = _own_address(listener.family)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def is_loopback(host: str) -> bool:
    """True if only programs on this machine reach ``host``."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _own_address(family: int) -> str:
    """The address that connections from here to elsewhere have; loopback where none leads there."""
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((_ELSEWHERE[family], 9))  # sends nothing
        except OSError:
            return _LOOPBACK[family]
        own: str = probe.getsockname()[0]
        return own


def bind_listener(host: str, port: int, setting: str) -> socket.socket:
    """A socket that listens; no child process inherits it unless told to.

    Args:
        port: 0 for any free one.
        setting: the setting that names the port, for the message.

    Raises:
        ServiceUnavailableError: the port is taken.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(BACKLOG_CONNECTIONS)
    except OSError as error:
        listener.close()
        raise ServiceUnavailableError(
            f"cannot listen on {host}:{port}: {error.strerror}.",
            next_step=f"Choose another with {setting} (0: any free port) or LIGHTSTREAM_HOST.",
        ) from error
    listener.set_inheritable(False)
    return listener
