"""The view as users run it, watched."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from lightstream.runtime.settings import Settings
from lightstream.store_views.client import ViewClient

CATCH_UP_TIMEOUT_S = 600.0
POLL_INTERVAL_S = 0.02


@contextmanager
def view_process(settings: Settings) -> Generator[subprocess.Popen[bytes], None, None]:
    """The view's process, ended at the end."""
    command = [sys.executable, "-m", "lightstream.cli", "view"]
    process = subprocess.Popen(command, env=os.environ | settings.to_environment(), stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(CATCH_UP_TIMEOUT_S)


def catch_up(process: subprocess.Popen[bytes], client: ViewClient, topic: str, records: int) -> float:
    """Wait until the view reflects so many records of a topic.

    Returns:
        Records per second, counted from the first transaction, so without start-up.
    """
    while (first := _reflected(client, topic)) == 0:
        assert process.poll() is None, "the view ended"
        time.sleep(POLL_INTERVAL_S)
    first_s = time.perf_counter()
    client.wait_for("now", wait_s=CATCH_UP_TIMEOUT_S)  # for one who waits, the last records wait for no company
    seconds = time.perf_counter() - first_s
    assert _reflected(client, topic) == records
    return (records - first) / seconds


def processor_seconds(pid: int) -> float:
    """Processor time that a process has taken."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_bytes_max(pid: int) -> int:
    """The most memory that a process has had."""
    (line,) = (line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def _reflected(client: ViewClient, topic: str) -> int:
    return sum(client.positions()["positions"].get(topic, {}).values())
