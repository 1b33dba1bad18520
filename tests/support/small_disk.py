"""A disk of a few MiB to fill: a file system in memory, which only root may mount."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

MIB = 1024 * 1024


@contextmanager
def small_disk(folder: Path, size_bytes: int) -> Generator[Path]:
    """A folder with a file system of its own; the test is skipped where none can be mounted."""
    folder.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "lightstream-test", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("no file system can be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(disk: Path, leave_bytes: int = 0) -> Path:
    """Make one file of a size that leaves so much free; returns it."""
    ballast = disk / "ballast"
    ballast.unlink(missing_ok=True)
    found = os.statvfs(disk)
    with ballast.open("wb", buffering=0) as file:  # a buffer would be written again on closing, and fail then
        left = found.f_bavail * found.f_frsize - leave_bytes
        while left > 0:
            try:
                left -= file.write(bytes(min(left, MIB)))
            except OSError as error:
                if leave_bytes or error.errno != errno.ENOSPC:
                    raise
                break
    return ballast
