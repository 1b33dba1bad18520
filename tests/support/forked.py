"""Programs that train, as a user starts them, but forked from a process that has loaded torch and verl."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO

from lightstream.runtime.files import exclusive

from .fork_server import NUMBER, ForkedProgram, receive_exactly

FOLDER = Path(tempfile.gettempdir()) / f"lightstream-forks-{os.environ.get('PYTEST_XDIST_TESTRUNUID', os.getpid())}"
"""All processes of a run of the tests share one server."""

START_TIMEOUT_S = 300.0


class Forked:
    """A Python program, used as ``subprocess.Popen`` is. Its streams are text.

    Args:
        arguments: what follows the interpreter on a command line: a file, ``-c TEXT``, ``-m MODULE``; nothing where
            the program comes by ``stdin``. The program's own follow.
        environment: the whole environment.
    """

    def __init__(
        self, arguments: Sequence[str], environment: Mapping[str, str], folder: Path, stdin: IO[str] | None = None
    ) -> None:
        self.returncode: int | None = None
        self._connection = _connect()
        out, written_out = os.pipe()
        err, written_err = os.pipe()
        with open(os.devnull) as nothing:
            source = (stdin or nothing).fileno()
            program = ForkedProgram(list(arguments), dict(environment), str(folder))
            program.send(self._connection, [source, written_out, written_err])
        os.close(written_out)
        os.close(written_err)
        self.stdout = os.fdopen(out)
        self.stderr = os.fdopen(err)
        self.pid = _number(self._connection)

    def __enter__(self) -> Forked:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.wait()
        self.stdout.close()
        self.stderr.close()

    def poll(self) -> int | None:
        """The exit status, or None while it runs."""
        with contextlib.suppress(TimeoutError):
            self.wait(0.0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Raises TimeoutError where it still runs then."""
        if self.returncode is None:
            self._connection.settimeout(timeout)
            try:
                status = _number(self._connection)
            except BlockingIOError as error:
                raise TimeoutError from error
            self.returncode = os.waitstatus_to_exitcode(status)
            self._connection.close()
        return self.returncode

    def send_signal(self, number: signal.Signals) -> None:
        """Nothing happens where it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Standard output and error, to their ends."""
        read: dict[str, str] = {}
        streams = {"out": self.stdout, "err": self.stderr}
        threads = [
            threading.Thread(target=lambda name=name: read.update({name: streams[name].read()}), daemon=True)
            for name in streams
        ]
        for thread in threads:
            thread.start()
        self.wait(timeout)
        for thread in threads:
            thread.join(timeout)
        return read["out"], read["err"]


def run_forked(
    arguments: Sequence[str], environment: Mapping[str, str], folder: Path, timeout: float
) -> subprocess.CompletedProcess[str]:
    """Run one to its end, which must come within ``timeout`` seconds."""
    with Forked(arguments, environment, folder) as program:
        try:
            out, err = program.communicate(timeout)
        except BaseException:
            program.kill()
            raise
    assert program.returncode is not None
    return subprocess.CompletedProcess(list(arguments), program.returncode, out, err)


def _number(connection: socket.socket) -> int:
    received = receive_exactly(connection, NUMBER.size)
    if len(received) < NUMBER.size:
        raise ConnectionError(f"the fork server is gone; see {FOLDER}/log.")
    number: int = NUMBER.unpack(received)[0]
    return number


_LEASE: list[socket.socket] = []
"""A connection that keeps the server running while this process does."""


def _connect() -> socket.socket:
    if not _LEASE:
        FOLDER.mkdir(exist_ok=True)
        with exclusive(FOLDER / "lock"):
            try:
                _LEASE.append(_connected())
            except OSError:
                _LEASE.append(_start())
    return _connected()


def _connected() -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(str(FOLDER / "socket"))
    except OSError:
        connection.close()
        raise
    return connection


def _start() -> socket.socket:
    path = FOLDER / "socket"
    path.unlink(missing_ok=True)
    with (FOLDER / "log").open("wb") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "tests.support.fork_server", str(path)],
            cwd=Path(__file__).parents[2],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            return _connected()
        except OSError:
            assert server.poll() is None, (FOLDER / "log").read_text()
            assert time.monotonic() < deadline, "the fork server does not start"
            time.sleep(0.05)
