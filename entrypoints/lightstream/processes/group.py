"""The process group of a child that :func:`spawn` started: the child and all that it started, unless they left it."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

__all__ = ["end_group"]

POLL_INTERVAL_S = 0.05
KILL_TIMEOUT_S = 5.0
"""A killed process is gone at once, unless the kernel waits for a disk on its behalf."""

DEAD_STATES = ("Z", "X")
PROC = Path("/proc")


def end_group(leader_pid: int, *, grace_s: float) -> None:
    """Wait until the processes that a child (now ended) left behind have ended too, and kill those that do not.

    Args:
        leader_pid: the child's process id, which is also the group's.
        grace_s: how long they may take to notice that their parent is gone.
    """
    deadline = time.monotonic() + grace_s
    while _has_members(leader_pid) and time.monotonic() < deadline:
        time.sleep(POLL_INTERVAL_S)
    deadline = time.monotonic() + KILL_TIMEOUT_S
    while _has_members(leader_pid) and time.monotonic() < deadline:
        try:
            os.killpg(leader_pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            return  # gone meanwhile; elsewhere than on Linux, zombies are not ours to signal
        time.sleep(POLL_INTERVAL_S)


def _has_members(group: int) -> bool:
    if not (PROC / "self").exists():
        try:
            os.killpg(group, 0)
        except (ProcessLookupError, PermissionError):
            return False
        return True
    return any(_is_member(process, group) for process in PROC.glob("[0-9]*"))


def _is_member(process: Path, group: int) -> bool:
    """Whether it belongs to the group and is not a zombie."""
    try:
        fields = (process / "stat").read_text("ascii", errors="replace").rpartition(")")[2].split()
    except OSError:
        return False  # it ended meanwhile
    state, _parent, its_group = fields[:3]
    return int(its_group) == group and state not in DEAD_STATES
