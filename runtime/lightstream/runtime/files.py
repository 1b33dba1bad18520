"""Small file operations that survive a crash between two lines."""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
from collections.abc import Generator
from pathlib import Path

__all__ = ["exclusive", "raise_file_limit", "read_number", "write_text"]


def write_text(path: Path, text: str) -> None:
    """Replace the file in one step; where that fails, it is unchanged."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(text, "utf-8")
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def read_number(path: Path) -> int | None:
    """The number in the file, or ``None`` where there is no such file or no number in it."""
    try:
        return int(path.read_text("utf-8"))
    except (FileNotFoundError, ValueError):
        return None


@contextlib.contextmanager
def exclusive(path: Path) -> Generator[None]:
    """Hold the lock file; others wait. The kernel lets go of it when the holder dies."""
    with path.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def raise_file_limit() -> None:
    """Let this process have as many open files as it may (``ulimit -Hn``)."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
