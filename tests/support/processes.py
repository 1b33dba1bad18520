"""Which processes a test left behind."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import psutil

from tests.support.waiting import eventually

__all__ = ["ends_its_children", "processes_of"]

SHARED = (
    "tests.support.fork_server",
    "multiprocessing.resource_tracker",
    *(() if "PYTEST_XDIST_WORKER" in os.environ else ("kafka.Kafka",)),
)
"""Children that outlive a file of tests; so does the broker where one process runs all tests."""


@contextmanager
def ends_its_children() -> Generator[None]:
    """Every process started within has ended at the end, or does so soon."""
    before = {child.pid for child in psutil.Process().children()}
    yield
    eventually(lambda: not _left(before), timeout_s=60.0, what=f"no child is left, but {_left(before)}")


def _left(before: set[int]) -> list[str]:
    return [command for child in psutil.Process().children() if child.pid not in before if (command := _command(child))]


def _command(child: psutil.Process) -> str:
    """Its command line; nothing where it has ended, or is one that all files share."""
    try:
        command = " ".join(child.cmdline())
        ended = child.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return ""
    return "" if ended or any(name in command for name in SHARED) else f"{child.pid} {command}"


def processes_of(folder: Path) -> list[str]:
    """Command lines of all processes but ours that name ``folder`` in their arguments or environment."""
    wanted = os.fsencode(folder)
    found: list[str] = []
    for process in Path("/proc").glob("[0-9]*"):
        if int(process.name) == os.getpid():
            continue
        try:
            command = (process / "cmdline").read_bytes()
            if wanted in command or wanted in (process / "environ").read_bytes():
                found.append(f"{process.name} {command.replace(bytes(1), b' ').decode(errors='replace')[:200]}")
        except OSError:
            continue  # it ended meanwhile, or is not ours to read
    return found
