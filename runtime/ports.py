"""Ports for our servers, chosen where the kernel does not hand them out by itself."""

from __future__ import annotations

import random
import socket
from collections.abc import Container

from lightstream.schemas.errors import BrokerError

PORTS = range(20_000, 32_000)
"""Below the kernel's range for outgoing connections (32768 and up on Linux). In that range a client that retries a
stopped broker could be given the broker's own port, connect to itself and keep the broker from coming back."""

ATTEMPTS_MAX = 200


def is_free(port: int, host: str = "127.0.0.1") -> bool:
    """Return whether a server could listen there now (a port in TIME_WAIT counts as free)."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen(1)
        except OSError:
            return False
    return True


def free_port(taken: Container[int] = ()) -> int:
    """A free port, drawn at random so that two starts at once rarely meet.

    Raises:
        BrokerError: none was found.
    """
    draw = random.SystemRandom()
    for _ in range(ATTEMPTS_MAX):
        port = draw.choice(PORTS)
        if port not in taken and is_free(port):
            return port
    raise BrokerError(
        f"no free port was found between {PORTS.start} and {PORTS.stop - 1} in {ATTEMPTS_MAX} attempts.",
        next_step="Name one with LIGHTSTREAM_BROKER_PORT.",
    )
