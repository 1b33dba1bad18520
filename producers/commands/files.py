"""Files at paths that a program could reach: it may have put a pipe, a link or a folder there."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path


def clear(path: Path) -> None:
    """Remove anything at a path, be it a file, a pipe, a link or a folder. The target of a link stays.

    Raises:
        OSError: it cannot be removed.
    """
    if path.is_dir() and not path.is_symlink():
        path.chmod(0o700)
        for parent, names, _ in os.walk(path):  # a folder without rights keeps its files
            for name in names:
                if not (folder := Path(parent, name)).is_symlink():
                    folder.chmod(0o700)
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def write_over(path: Path, content: bytes) -> None:
    """Write a file in place of anything at its path. It neither waits for a pipe's reader nor follows a link.

    Raises:
        OSError: it cannot be written.
    """
    clear(path)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(content)


def read_head(path: Path, size: int) -> bytes:
    """The first bytes of a file, at most ``size``. It does not wait for a pipe's writer.

    Raises:
        FileNotFoundError: there is nothing.
        OSError: it cannot be read, or is no file.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as stream:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(f"{path} is no file")
        return stream.read(size)
