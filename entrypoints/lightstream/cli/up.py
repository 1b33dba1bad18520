"""``lightstream up``: a stack in the foreground."""

from __future__ import annotations

import signal
import threading
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from rich.console import Console
from rich.table import Table

from lightstream.schemas.services import running_services
from lightstream.schemas.settings import Settings
from lightstream.up import PolicyOptions, Stack

__all__ = ["run_up"]

console = Console(highlight=False, soft_wrap=True)


def run_up(settings: Settings, services: Sequence[str], checkpoint: Path | None, run_id: str) -> None:
    """Start the services, show where they are, and keep them running until SIGINT, SIGTERM or SIGHUP."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    policy = PolicyOptions(checkpoint, run_id) if "policy" in services else None
    stack = Stack(settings, services=services, policy=policy)
    console.print("Starting; the first time this fetches Kafka.")
    try:
        stack.start()
        console.print(_overview(stack))
        console.print(f"Logs are in {settings.data_dir / 'logs'}. Ctrl-C stops everything.")
        threading.Event().wait()
    except KeyboardInterrupt:
        console.print("Stopping.")
    finally:
        stack.stop()
    console.print("Stopped; all records are kept.")


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _overview(stack: Stack) -> Table:
    table = Table("process", "address", "id")
    for service in running_services(stack.settings):
        table.add_row(service.name, service.address or "-", str(service.pid))
    return table
