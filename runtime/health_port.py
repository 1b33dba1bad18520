"""Health and metrics of a process that is no server, at a port that a setting names.

Where the port is set, it needs uvicorn, starlette and prometheus-client, which the plain install lacks.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lightstream.schemas.errors import ServiceUnavailableError

from .kafka import KafkaContact
from .listening import bind_listener
from .settings import Settings

if TYPE_CHECKING:
    from .metrics import Readings

PORTS = 32
"""Processes of one kind on a machine that can be told apart by their port."""


@contextmanager
def served_health(
    settings: Settings,
    *,
    name: str,
    setting: str,
    ready: Sequence[Callable[[], str | None]] = (),
    metrics: Sequence[Readings] = (),
) -> Generator[str | None]:
    """Answer ``/healthz``, ``/readyz`` (is Kafka there?) and ``/metrics`` while the block runs.

    Args:
        name: of the process, in its metrics. It is announced nowhere, as there may be several.
        setting: the field of the settings that names the port. Where others have that, the next free one of
            :data:`PORTS` is taken; at 0 nothing is served.
        ready: further checks of ``/readyz``.
        metrics: further metrics.

    Yields:
        Its URL; ``None`` where nothing is served.

    Raises:
        ServiceUnavailableError: none of the ports is free.
    """
    port: int = getattr(settings, setting)
    if port == 0:
        yield None
        return
    from starlette.applications import Starlette

    from .http.server import HttpServer

    listener = _first_free(settings, port, f"LIGHTSTREAM_{setting.upper()}")
    ready = [KafkaContact(settings), *ready]
    server = HttpServer(
        Starlette(), settings, name=name, listener=listener, announced=False, ready=ready, metrics=metrics
    )
    try:
        yield server.start()
    finally:
        server.stop()


def _first_free(settings: Settings, first: int, variable: str) -> socket.socket:
    last = min(first + PORTS, 1 << 16) - 1
    for port in range(first, last + 1):
        try:
            return bind_listener(settings.host, port, variable)
        except ServiceUnavailableError as error:
            if port == last:
                raise ServiceUnavailableError(
                    f"cannot tell health and metrics at {settings.host}, ports {first} to {last}: {error.__cause__}.",
                    next_step=f"Choose other ports with {variable} (0: none), or LIGHTSTREAM_HOST.",
                ) from error
    raise AssertionError("there is a last port")
