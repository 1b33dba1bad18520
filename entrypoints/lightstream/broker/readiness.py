"""When a starting broker may be used."""

from __future__ import annotations

import logging
import socket
import subprocess
import time
from typing import Any

from confluent_kafka.admin import AdminClient

from lightstream.schemas.kafka.admin import partitions_answer

__all__ = ["answers", "wait_until_ready"]

POLL_INTERVAL_S = 0.05
REQUEST_TIMEOUT_S = 2.0


def answers(address: str, timeout_s: float = REQUEST_TIMEOUT_S) -> bool:
    """Whether a cluster answers there and serves every partition it has."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout_s).close()
    except OSError:
        return False
    config: dict[str, Any] = {"bootstrap.servers": address, "logger": _SILENT}
    return partitions_answer(AdminClient(config), timeout_s=timeout_s)


def wait_until_ready(process: subprocess.Popen[bytes], address: str, timeout_s: float) -> bool:
    """Wait until the broker lists itself as a member of its cluster; False when it ended or time was up."""
    deadline = time.monotonic() + timeout_s
    while process.poll() is None and time.monotonic() < deadline:
        if answers(address):
            return True
        time.sleep(POLL_INTERVAL_S)
    return False


_SILENT = logging.getLogger("lightstream.broker.readiness")
"""librdkafka would print each refused connection while the broker starts."""
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False
