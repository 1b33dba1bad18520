"""Run as a script in the child, before the real program: ask the kernel to kill us when our parent dies, then exec.

``python -I -S launch.py <parent pid, or 0> <name=descriptor,…, or -> <program> <argument>…``. The descriptors are
sockets that listen; the program gets them as systemd hands them over (``sd_listen_fds(3)``). Standard library only; it
adds about 30 ms to a start. A function run between fork and exec (``preexec_fn``) would be shorter, but may deadlock in
a process with threads.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
"""``prctl(2)``. The setting survives ``execve``."""


FIRST_DESCRIPTOR = 3
"""``SD_LISTEN_FDS_START``."""

BEYOND_DESCRIPTOR = 64
"""Out of the way of those that are renumbered."""


def main() -> None:
    """Bind this process to its parent, then become the program."""
    parent_pid, listeners, program = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
    if listeners != "-":
        hand_over(dict(pair.split("=") for pair in listeners.split(",")))
    if parent_pid and sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if parent_pid and os.getppid() != parent_pid:
        sys.exit(1)  # the parent died before the kernel knew about us
    os.execvp(program[0], program)  # noqa: S606 - the program is ours


def hand_over(listeners: dict[str, str]) -> None:
    """Number the descriptors as the program expects them, and name them in the environment."""
    moved = [fcntl.fcntl(int(descriptor), fcntl.F_DUPFD, BEYOND_DESCRIPTOR) for descriptor in listeners.values()]
    for place, descriptor in enumerate(moved):
        os.dup2(descriptor, FIRST_DESCRIPTOR + place, inheritable=True)
        os.close(descriptor)
    names = ":".join(listeners)
    os.environ |= {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": str(len(listeners)), "LISTEN_FDNAMES": names}


if __name__ == "__main__":
    main()
