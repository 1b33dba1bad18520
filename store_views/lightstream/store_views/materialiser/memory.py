"""How much memory the view takes where nothing is said."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["default_memory_bytes"]

MEMORY_SHARE_OF_MACHINE_MAX = 0.5
"""The other half is for what else runs: broker, worker, Runners."""
MEMORY_BYTES_MAX = 4 * 1024**3
"""A million rollouts with their calls are answered about in less than that, without going to disk."""
CONTAINER_LIMIT_FILE = Path("/sys/fs/cgroup/memory.max")
"""Of a container (control groups, version 2): a number of bytes, or ``max``."""


def default_memory_bytes(limit_file: Path = CONTAINER_LIMIT_FILE) -> int:
    """Half of the machine's memory or of the container's, whichever is less, and 4 GiB at most."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(int(min(machine, _container_bytes(limit_file)) * MEMORY_SHARE_OF_MACHINE_MAX), MEMORY_BYTES_MAX)


def _container_bytes(limit_file: Path) -> float:
    try:
        text = limit_file.read_text(encoding="ascii").strip()
    except OSError:
        return float("inf")  # no container, or another system
    return int(text) if text.isdigit() else float("inf")
