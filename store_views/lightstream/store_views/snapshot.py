"""A copy of the view's file that any program may open, while the view goes on."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from .materialiser import ViewDatabase

__all__ = ["publish_snapshot"]


def publish_snapshot(database: ViewDatabase, target: Path) -> Path:
    """Copy everything committed so far to ``target``, replacing what is there, atomically.

    Appending waits meanwhile (about 1 s per GB on a local disk); readers do not. Programs that have an earlier snapshot
    open keep reading that one.

    Raises:
        OSError: the disk is full, say; ``target`` is unchanged.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".snapshot-") as folder:
        copy = Path(folder) / target.name
        with database.paused():
            shutil.copyfile(database.path, copy)
        os.replace(copy, target)
    return target
