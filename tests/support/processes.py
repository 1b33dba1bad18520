"""Which processes a test left behind."""

from __future__ import annotations

import os
from pathlib import Path


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
