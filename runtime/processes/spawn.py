"""Starts programs that die with us, whichever thread asks for them, and ends the process groups they leave behind.

The kernel's parent-death signal is sent when the *thread* that forked ends, so all forks of a process happen on one
thread that never does.
"""

from __future__ import annotations

import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

import psutil

from ..files import private_folder

POLL_INTERVAL_S = 0.05
KILL_TIMEOUT_S = 5.0
"""A killed process is gone at once, unless the kernel waits for a disk on its behalf."""

ENDED = (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)

LAUNCH_SCRIPT = Path(__file__).with_name("launch.py")


@dataclass(frozen=True, slots=True)
class _Order:
    program: Sequence[str]
    environment: Mapping[str, str]
    log_file: Path
    descriptors: Sequence[int]
    result: Future[subprocess.Popen[bytes]]


def spawn(
    program: Sequence[str],
    *,
    log_file: Path,
    environment: Mapping[str, str] | None = None,
    dies_with_us: bool = True,
    listeners: Mapping[str, socket.socket] | None = None,
) -> subprocess.Popen[bytes]:
    """Start ``program`` in a session of its own, so that Ctrl-C in our terminal reaches only us.

    Args:
        program: path and arguments.
        log_file: its standard output and error are appended there; its folder is made.
        environment: the whole environment of the child; unset means ours.
        listeners: sockets that listen, handed over by name as systemd does (``sd_listen_fds(3)``). They stay open here,
            so that clients wait in their queues when the child has gone and another one is started with them.
        dies_with_us: it is killed (SIGKILL) when this process ends in whatever way. Linux only; elsewhere it stays.

    Raises:
        OSError: the program cannot be started, or the log file cannot be opened.
        ValueError: a listener is closed.
    """
    variables = os.environ if environment is None else environment
    descriptors = {name: listener.fileno() for name, listener in (listeners or {}).items()}
    bound = dies_with_us and sys.platform == "linux"
    if not bound and not descriptors:
        return _popen(program, variables, log_file)
    handed = ",".join(f"{name}={descriptor}" for name, descriptor in descriptors.items()) or "-"
    launched = [sys.executable, "-I", "-S", str(LAUNCH_SCRIPT), str(os.getpid() if bound else 0), handed, *program]
    result: Future[subprocess.Popen[bytes]] = Future()
    _orders().put(_Order(launched, variables, log_file, tuple(descriptors.values()), result))
    try:
        return result.result()
    except BaseException:
        result.add_done_callback(_kill)  # we were interrupted, so nobody will know of what is being started
        raise


def _kill(started: Future[subprocess.Popen[bytes]]) -> None:
    if started.exception() is None:
        started.result().kill()


def _popen(
    program: Sequence[str], environment: Mapping[str, str], log_file: Path, descriptors: Sequence[int] = ()
) -> subprocess.Popen[bytes]:
    private_folder(log_file.parent)
    with log_file.open("ab") as output:
        return subprocess.Popen(
            list(program),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=dict(environment),
            start_new_session=True,
            pass_fds=descriptors,
        )


_LOCK = threading.Lock()
_QUEUES: dict[int, queue.SimpleQueue[_Order]] = {}


def _orders() -> queue.SimpleQueue[_Order]:
    """The queue of this process's forking thread; a forked child gets a thread of its own."""
    with _LOCK:
        orders = _QUEUES.get(os.getpid())
        if orders is None:
            orders = queue.SimpleQueue()
            _QUEUES[os.getpid()] = orders
            threading.Thread(target=_serve, args=(orders,), name="lightstream-spawn", daemon=True).start()
        return orders


def _serve(orders: queue.SimpleQueue[_Order]) -> None:
    while True:
        order = orders.get()
        try:
            order.result.set_result(_popen(order.program, order.environment, order.log_file, order.descriptors))
        except Exception as error:  # noqa: BLE001 - whatever it is, who asked must know it, and the next is served
            order.result.set_exception(error)


def end_group(leader_pid: int, *, grace_s: float) -> None:
    """Wait until the processes that a child (now ended) left behind have ended too, and kill the others.

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
            return  # it ended meanwhile
        time.sleep(POLL_INTERVAL_S)


def _has_members(group: int) -> bool:
    """Return whether a process that is no zombie belongs to the group."""
    for process in psutil.process_iter():
        try:
            if os.getpgid(process.pid) == group and process.status() not in ENDED:
                return True
        except (ProcessLookupError, PermissionError, psutil.Error):
            continue  # it ended meanwhile, or is somebody else's
    return False
