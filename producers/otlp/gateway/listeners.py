"""The gateway's two sockets: bound by itself, or open already and handed over by a supervisor.

A supervisor that holds the sockets keeps both ports open while the gateway is started again. They come as systemd hands
sockets to a service (``sd_listen_fds(3)``): file descriptors from 3 on, named in the environment. The gRPC server
cannot take a socket that is open already, so a relay passes its connections on (:mod:`lightstream.runtime.http.relay`).
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass

from lightstream.runtime.listening import bind_listener
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import ServiceUnavailableError

FIRST_DESCRIPTOR = 3
"""``SD_LISTEN_FDS_START``."""

HTTP, GRPC = "otlp-http", "otlp-grpc"
"""Names of the two sockets."""

CONVENTIONAL_PORTS = {HTTP: 4318, GRPC: 4317}
"""The defaults of every OTLP client (OTLP specification, "Default Port")."""


@dataclass(frozen=True, slots=True)
class Listeners:
    """Both sockets, listening."""

    http: socket.socket
    grpc: socket.socket

    def by_name(self) -> dict[str, socket.socket]:
        """The sockets by name, for handing them over."""
        return {HTTP: self.http, GRPC: self.grpc}


def open_listeners(settings: Settings) -> Listeners:
    """Listeners that were handed over, and new ones for the rest.

    Without a port in the settings the conventional one is tried first, then any free one.

    Raises:
        ServiceUnavailableError: a port that the settings name is taken.
    """
    given = inherited(dict(os.environ), os.getpid())
    http = given.get(HTTP) or _bound(settings, settings.gateway_port, HTTP, "LIGHTSTREAM_GATEWAY_PORT")
    try:
        grpc = given.get(GRPC) or _bound(settings, settings.gateway_grpc_port, GRPC, "LIGHTSTREAM_GATEWAY_GRPC_PORT")
    except ServiceUnavailableError:
        http.close()
        raise
    return Listeners(http, grpc)


def inherited(environment: dict[str, str], pid: int) -> dict[str, socket.socket]:
    """Sockets handed to this process, by name; none if the environment speaks to another process."""
    if environment.get("LISTEN_PID") != str(pid):
        return {}
    names = environment.get("LISTEN_FDNAMES", "").split(":")
    count = int(environment.get("LISTEN_FDS", "0"))
    return {name: socket.socket(fileno=FIRST_DESCRIPTOR + place) for place, name in enumerate(names[:count])}


def _bound(settings: Settings, port: int | None, name: str, setting: str) -> socket.socket:
    if port is not None:
        return bind_listener(settings.host, port, setting)
    try:
        return bind_listener(settings.host, CONVENTIONAL_PORTS[name], setting)
    except ServiceUnavailableError:
        return bind_listener(settings.host, 0, setting)
