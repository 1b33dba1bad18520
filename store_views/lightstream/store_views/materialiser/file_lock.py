"""One process owns the file."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from lightstream.schemas.errors import ServiceUnavailableError

__all__ = ["FileLock"]


class FileLock:
    """An exclusive lock next to ``path`` (``<path>.lock``), given back by the system when the process dies.

    Raises:
        ServiceUnavailableError: another process holds it; names that process.
    """

    def __init__(self, path: Path) -> None:
        self._path = path.with_name(path.name + ".lock")
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(self._handle, 32, 0).decode("ascii", errors="replace").strip() or "unknown"
            os.close(self._handle)
            raise ServiceUnavailableError(
                f"the view {path} is owned by process {holder}.",
                next_step="Query it with `lightstream sql`, or stop that process, or choose another "
                "LIGHTSTREAM_DATA_DIR.",
            ) from error
        os.ftruncate(self._handle, 0)
        os.pwrite(self._handle, f"{os.getpid()}\n".encode("ascii"), 0)

    @property
    def is_held(self) -> bool:
        """Until it is given back."""
        return self._handle >= 0

    def release(self) -> None:
        """Give the lock back. Safe to call twice."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1
