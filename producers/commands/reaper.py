"""Runs one command, and ends everything that it started before it ends itself. Standard library alone.

    python -I -S reaper.py PARENT_PID GRACE_S FILE_BYTES_MAX COMMAND

The command runs by ``/bin/sh -c`` in a session of its own. On Linux its orphans become children of this process
(``PR_SET_CHILD_SUBREAPER``, prctl(2)), so neither ``setsid`` nor a double fork hides a process from it. When this
process gets SIGTERM, or its parent ends (``PR_SET_PDEATHSIG``), it sends SIGTERM to all descendants, and SIGKILL after
the grace. It also ends what the command leaves running. Without ``/proc`` it ends the command's process group alone.

Exit status: the command's; 128 + n where signal n ended it.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
NOTICED = {signal.SIGTERM, signal.SIGINT, signal.SIGCHLD}
LOOK_S = 0.02
PROC = Path("/proc")


def main(parent: int, grace_s: float, file_bytes_max: int, command: str) -> int:
    """Run the command; returns the exit status."""
    signal.pthread_sigmask(signal.SIG_BLOCK, NOTICED)
    if sys.platform == "linux":
        prctl = ctypes.CDLL(None, use_errno=True).prctl
        prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent:
            return 128 + signal.SIGTERM  # it ended before this process could ask to be told
    if file_bytes_max:
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes_max, file_bytes_max))
    defaults = {signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGHUP}
    child = os.posix_spawn(
        "/bin/sh", ["/bin/sh", "-c", command], os.environ, setsid=True, setsigmask=[], setsigdef=defaults
    )
    for stream in (0, 1, 2):
        os.close(stream)  # theirs alone, so that a reader sees the end of them
    status = None
    while status is None:
        if signal.sigwait(NOTICED) is not signal.SIGCHLD:
            break
        status = _reap(child)
    late = _end_all(child, grace_s)
    status = late if status is None else status
    if status is None:
        return 128 + signal.SIGTERM
    return status if status >= 0 else 128 - status


def _end_all(child: int, grace_s: float) -> int | None:
    """End every descendant; returns the status of the command if it ended meanwhile."""
    status = None
    _send(child, signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    while True:
        ended = _reap(child)
        status = ended if ended is not None else status
        if not _running(child):
            return status
        if time.monotonic() >= deadline:
            _send(child, signal.SIGKILL)
        with suppress(InterruptedError):
            signal.sigtimedwait([signal.SIGCHLD], LOOK_S)


def _reap(child: int) -> int | None:
    """Collect processes that have ended; returns the exit code of ``child`` if it is among them."""
    found = None
    with suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            if pid == child:
                found = os.waitstatus_to_exitcode(status)
    return found


def _send(child: int, number: signal.Signals) -> None:
    for pid in _descendants():
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
    if not PROC.is_dir():
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child, number)


def _running(child: int) -> bool:
    if PROC.is_dir():
        return bool(_descendants())
    try:
        os.killpg(child, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _descendants() -> list[int]:
    """Process ids of all children, their children, and so on."""
    children: dict[int, list[int]] = {}
    with suppress(FileNotFoundError):
        for process in PROC.iterdir():
            if process.name.isdecimal():
                with suppress(OSError):
                    # The name, in parentheses, may have any characters; the parent is the second field after it.
                    fields = (process / "stat").read_bytes().rpartition(b")")[2].split()
                    children.setdefault(int(fields[1]), []).append(int(process.name))
    found, to_visit = [], [os.getpid()]
    while to_visit:
        below = children.get(to_visit.pop(), [])
        found += below
        to_visit += below
    return found


if __name__ == "__main__":
    raise SystemExit(main(int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]), sys.argv[4]))
