"""Waits for a starting broker, and explains a failed start in words a person can act on."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient

from lightstream.runtime.kafka.admin import partitions_answer
from lightstream.runtime.kafka.client_log import CLIENT_LOG
from lightstream.schemas.distribution import install_hint
from lightstream.schemas.errors import BrokerError

from .config import BrokerFiles

POLL_INTERVAL_S = 0.05
REQUEST_TIMEOUT_S = 2.0

FREE_BYTES_MIN = 256 * 1024 * 1024
"""Room for the internal topics, the snapshots and one full segment; with less Kafka stops itself at the first write."""

TAIL_BYTES_MAX = 64 * 1024
TAIL_LINES_MAX = 8

CAUSES: tuple[tuple[str, str], ...] = (
    (r"No space left on device", "Free space on that disk, or name another with LIGHTSTREAM_DATA_DIR."),
    (r"Address already in use", "Name another port with LIGHTSTREAM_BROKER_PORT."),
    (r"Permission denied|AccessDenied", "Make the data folder writable, or name another with LIGHTSTREAM_DATA_DIR."),
    (r"UnsupportedClassVersionError", f"That Java is too old; {install_hint('broker')} brings one."),
    (r"OutOfMemoryError|insufficient memory", "Free memory: the broker needs about 400 MB."),
    (r"Failed to acquire lock", "Another broker uses this data folder; stop it first."),
)


def answers(address: str, timeout_s: float = REQUEST_TIMEOUT_S) -> bool:
    """Return whether a cluster answers there and serves every partition it has."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout_s).close()
    except OSError:
        return False
    config: dict[str, Any] = {"bootstrap.servers": address, "logger": CLIENT_LOG}
    return partitions_answer(AdminClient(config), timeout_s=timeout_s)


def wait_until_ready(process: subprocess.Popen[bytes], address: str, timeout_s: float) -> bool:
    """Wait until the broker lists itself as a member of its cluster; False when it ended or time was up."""
    deadline = time.monotonic() + timeout_s
    while process.poll() is None and time.monotonic() < deadline:
        if answers(address):
            return True
        time.sleep(POLL_INTERVAL_S)
    return False


def require_space(folder: Path, needed_bytes: int = FREE_BYTES_MIN) -> None:
    """Refuse to start on a full disk.

    Raises:
        BrokerError: there is too little room.
    """
    free_bytes = shutil.disk_usage(folder).free
    if free_bytes < needed_bytes:
        raise BrokerError(
            f"the disk of {folder} has {free_bytes:,} bytes free; the broker needs {needed_bytes:,}.",
            next_step="Free space there, or name another folder with LIGHTSTREAM_DATA_DIR.",
        )


def explain(files: BrokerFiles, log_start: int, exit_status: int | None, timeout_s: float) -> BrokerError:
    """The error for a broker that ended (``exit_status``) or did not answer within ``timeout_s``.

    ``log_start`` is the size the log had before this start: older lines say nothing about it.
    """
    output = _tail(files.output, 0) + _tail(files.log, log_start)
    text = "\n".join(output)
    happened = (
        f"the broker did not answer within {timeout_s:g} s"
        if exit_status is None
        else f"the broker ended while starting (exit status {exit_status})"
    )
    next_step = next((step for pattern, step in CAUSES if re.search(pattern, text)), "")
    errors = [line for line in output if re.search(r"\b(ERROR|FATAL)\b|Exception|Error", line)] or output
    shown = "\n  ".join(errors[-TAIL_LINES_MAX:]) or "(nothing)"
    return BrokerError(
        f"{happened}. Its last output:\n  {shown}\n", next_step=f"{next_step} The whole log: {files.log}".strip()
    )


def _tail(path: Path, start: int) -> list[str]:
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            if start > size:
                start = 0  # the log was rolled over meanwhile
            file.seek(max(start, size - TAIL_BYTES_MAX))
            return file.read().decode("utf-8", "replace").splitlines()
    except FileNotFoundError:
        return []
