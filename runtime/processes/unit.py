"""A child process that a supervisor keeps running: it announces itself when it is ready, and has a log file."""

from __future__ import annotations

import logging
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from urllib.parse import urlsplit

from lightstream.schemas.errors import ServiceUnavailableError

from ..services import Service, announce, find, running_services, was_announced, withdraw
from ..settings import ENVIRONMENT_PREFIX, Settings
from .spawn import end_group, spawn

logger = logging.getLogger(__name__)

POLL_INTERVAL_S = 0.05
LOG_BYTES_MAX = 10 * 1024 * 1024
"""A longer log is moved aside to ``<name>.log.1``: before its process starts, and while it runs."""

LOG_TAIL_LINES = 15
HEALTH_PATH = "/healthz"

GROUP_GRACE_S = 20.0
"""A killed trainer's Runners take at most 15 s to let attempts finish; the rest is a margin."""


class ProcessUnit:
    """A child process that announces itself when it is ready, and dies with us.

    Args:
        name: under which it announces itself; also the name of its log.
        program: path and arguments.
        settings: handed to the child through its environment.
        ready_timeout_s: how long it may take to announce itself.
        stop_timeout_s: how long it may take to end after SIGTERM before it is killed.
        group_grace_s: how long processes that it leaves behind may take to end before they are killed.
        listeners: sockets handed over to it at each start, by name; closed by :meth:`stop`.
    """

    def __init__(
        self,
        name: str,
        program: Sequence[str],
        settings: Settings,
        *,
        ready_timeout_s: float = 300.0,
        stop_timeout_s: float = 15.0,
        group_grace_s: float = GROUP_GRACE_S,
        listeners: Mapping[str, socket.socket] | None = None,
    ) -> None:
        self._name = name
        self._program = tuple(program)
        self._settings = settings
        self._ready_timeout_s = ready_timeout_s
        self._stop_timeout_s = stop_timeout_s
        self._group_grace_s = group_grace_s
        self._listeners = dict(listeners or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._services: dict[str, Service] = {}
        self._stopping = threading.Event()
        self._spawning = threading.Lock()

    @property
    def name(self) -> str:
        return self._name

    @property
    def log_file(self) -> Path:
        """The file that its output goes to."""
        return self._settings.data_dir / "logs" / f"{self._name}.log"

    @property
    def pid(self) -> int | None:
        process = self._process
        service = find(self._settings, self._name)
        return process.pid if process is not None and service is not None and service.pid == process.pid else None

    def start(self) -> None:
        self._refuse_a_second_one()
        log_start = self._turn_log_over()
        process = self._spawn()
        deadline = time.monotonic() + self._ready_timeout_s
        while not self._stopping.wait(POLL_INTERVAL_S):
            if process.poll() is not None:
                if was_announced(self._settings, self._name, process.pid):
                    return  # it was ready, and ended before we looked: as any that ends later
                raise self._error(f"ended while starting (exit status {process.returncode})", log_start)
            if self.pid is not None:
                self._announce_again()
                return
            if time.monotonic() > deadline:
                self.kill()
                raise self._error(f"was not ready within {self._ready_timeout_s:g} s", log_start)
        self.stop()
        raise stopped_while_starting(self._name)

    def _spawn(self) -> subprocess.Popen[bytes]:
        with self._spawning:  # `stop` closes the listeners
            if self._stopping.is_set():
                raise stopped_while_starting(self._name)
            self._process = spawn(
                self._program,
                log_file=self.log_file,
                environment=child_environment(self._settings),
                listeners=self._listeners,
            )
            return self._process

    def look_after(self, why_ended: Callable[[str], None]) -> None:
        self._announce_again()
        self._cut_log()

    def _announce_again(self) -> None:
        process = self._process
        if process is None or process.poll() is not None:
            return
        now = {service.name: service for service in running_services(self._settings) if service.pid == process.pid}
        self._services = {name: s for name, s in self._services.items() if s.pid == process.pid} | now
        for name in self._services.keys() - now.keys():
            logger.warning("the announcement of %s (process %d) was gone; it is there again", name, process.pid)
            announce(self._settings, self._services[name], is_stacks_own=True)

    def answers(self, timeout_s: float) -> bool:
        service = find(self._settings, self._name)
        if service is None or not (service.health or service.address).startswith("http:"):
            return True
        address = urlsplit(service.health or service.address)
        connection = HTTPConnection(address.hostname or "", address.port, timeout=timeout_s)
        try:
            connection.request("GET", HEALTH_PATH)
            return connection.getresponse().status < HTTPStatus.INTERNAL_SERVER_ERROR
        except (OSError, HTTPException):
            return False
        finally:
            connection.close()

    def wait(self) -> int | None:
        return None if self._process is None else self._process.wait()

    def kill(self) -> None:
        process = self._process
        if process is not None:
            process.kill()
            process.wait()
            withdraw(self._settings, self._name, process.pid)

    def stop(self) -> None:
        self._stopping.set()
        with self._spawning:
            for listener in self._listeners.values():
                listener.close()
        self._end()

    def _end(self) -> None:
        process = self._process
        if process is None:
            return
        process.terminate()
        try:
            process.wait(self._stop_timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        end_group(process.pid, grace_s=self._group_grace_s)
        withdraw(self._settings, self._name, process.pid)

    def _refuse_a_second_one(self) -> None:
        service = find(self._settings, self._name)
        if service is not None:
            raise ServiceUnavailableError(
                f"a {self._name} (process {service.pid}) already runs with the data folder {self._settings.data_dir}.",
                next_step="Stop it first, or name another folder with LIGHTSTREAM_DATA_DIR.",
            )

    def _turn_log_over(self) -> int:
        """Size of the log before this start."""
        try:
            size = self.log_file.stat().st_size
        except FileNotFoundError:
            return 0
        if size <= LOG_BYTES_MAX:
            return size
        os.replace(self.log_file, self.log_file.with_suffix(".log.1"))
        return 0

    def _cut_log(self) -> None:
        """Move a log that has grown too long aside. The process goes on at the beginning of the same file: it appends,
        wherever the end is. Lines that it writes between the copy and the cut are lost."""
        try:
            if self.log_file.stat().st_size <= LOG_BYTES_MAX:
                return
            with self.log_file.open("r+b") as log, self.log_file.with_suffix(".log.1").open("wb") as old:
                shutil.copyfileobj(log, old)
                log.truncate(0)
        except OSError as error:  # the disk may be full, which is no reason to look after it no more
            logger.warning("the log %s was not cut: %s", self.log_file, error)

    def _error(self, happened: str, log_start: int) -> ServiceUnavailableError:
        with self.log_file.open("rb") as file:
            file.seek(log_start)
            lines = file.read().decode("utf-8", "replace").splitlines()
        log_tail = "\n  ".join(lines[-LOG_TAIL_LINES:]) or "(nothing)"
        return ServiceUnavailableError(
            f"{self._name} {happened}. Its last output:\n  {log_tail}\n", next_step=f"The whole log: {self.log_file}"
        )


def stopped_while_starting(name: str) -> ServiceUnavailableError:
    """The error of a unit that :meth:`Unit.stop` ended before it was ready."""
    return ServiceUnavailableError(f"{name} was stopped while it started.")


def child_environment(settings: Settings) -> dict[str, str]:
    """Our environment with exactly these settings in it."""
    ours = {f"{ENVIRONMENT_PREFIX}{name.upper()}" for name in type(settings).model_fields}
    inherited = {name: value for name, value in os.environ.items() if name.upper() not in ours}
    return inherited | settings.to_environment() | {"PYTHONUNBUFFERED": "1"}
