"""Small file operations that survive a crash between two lines."""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
from collections.abc import Generator, Iterable
from pathlib import Path

PRIVATE_UMASK = 0o077
"""Of our commands, and of the programs that they start: files 0600, folders 0700."""


def private_folder(folder: Path) -> None:
    """Make a folder and its missing parents, for this user alone; an existing folder stays as it is."""
    if not folder.is_dir():
        private_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def close_to_others(folders: Iterable[Path]) -> None:
    """Take the rights of other users from folders of this user's, which an earlier version left open.

    Raises:
        OSError: the file system does not allow it.
    """
    for folder in folders:
        if folder.is_dir() and not folder.is_symlink() and folder.stat().st_uid == os.getuid():
            folder.chmod(folder.stat().st_mode & 0o700)


def write_text(path: Path, text: str) -> None:
    """Replace the file in one step, for this user alone; where that fails, it is unchanged."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        temporary.touch(0o600)
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
