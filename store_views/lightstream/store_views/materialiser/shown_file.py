"""How far readers have seen the view: what is not yet in the file when the process dies comes back from the log."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from .positions import Place

__all__ = ["ShownFile"]


class ShownFile:
    """Offsets in a small file, next to the view's (``<path>.shown``). Survives the process, not always the machine.

    Args:
        path: of the view's file.
    """

    def __init__(self, path: Path) -> None:
        self._handle = os.open(path.with_name(path.name + ".shown"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def read(self) -> dict[Place, int]:
        """Place -> next offset, as last written; nothing where that cannot be read."""
        line, newline, _ = os.pread(self._handle, os.fstat(self._handle).st_size, 0).partition(b"\n")
        try:
            rows = json.loads(line) if newline else []
            return {(str(topic), int(partition)): int(offset) for topic, partition, offset in rows}
        except (ValueError, TypeError):
            return {}

    def write(self, next_offsets: Mapping[Place, int]) -> None:
        """Replace what was written: some 50 microseconds, since nothing waits for the disk."""
        rows = [[*place, offset] for place, offset in next_offsets.items()]
        os.pwrite(self._handle, json.dumps(rows).encode() + b"\n", 0)

    def close(self) -> None:
        """Safe to call twice."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1
