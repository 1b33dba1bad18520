"""The embedded broker: start, stop, kill, wipe."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

import psutil

from lightstream.runtime.files import exclusive, private_folder, read_number, write_text
from lightstream.runtime.ports import free_port, is_free
from lightstream.runtime.processes import spawn
from lightstream.runtime.services import Service, announce, find, withdraw
from lightstream.runtime.settings import Settings
from lightstream.schemas.distribution import install_hint
from lightstream.schemas.errors import BrokerError

from .config import BrokerFiles, broker_name, heap_mebibytes, log4j_properties, server_properties
from .jars import fetch_jars
from .java import broker_command, find_java, prepare_records, random_id
from .quorum import quorum_of
from .startup import explain, require_space, wait_until_ready

READY_TIMEOUT_S = 120.0
"""Ready in 1-2 s on two idle cores; the rest is for a loaded machine, and for log recovery after a kill."""

STOP_TIMEOUT_S = 30.0
PORT_WAIT_S = 10.0
"""A restart waits this long for the former broker's port."""

POLL_INTERVAL_S = 0.05


class EmbeddedBroker:
    """One node of Apache Kafka, alone or of three, whose records live in ``<data_dir>/broker`` (``broker-2``, …).

    Starting it again, also after a kill, serves the same records on the same port. One broker runs per data folder:
    ``start`` on a folder whose broker already runs only returns its address.

    Args:
        settings: ``data_dir``, ``cache_dir``, ``broker_port`` (0: the port of the last start if free, else another) and
            ``record_bytes_max`` are used; ``kafka_bootstrap_servers`` is not.
        dies_with_us: the broker is killed when this process ends; False lets it run on (``lightstream broker start``).
        node: its number, of ``settings.brokers``. All of them have to be started, at the same time at first.
        java: the Java to use instead of the installed one.
        java_options: further options of that Java.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        dies_with_us: bool = True,
        node: int = 1,
        java: Path | None = None,
        java_options: Sequence[str] = (),
    ) -> None:
        self._settings = settings
        self._files = BrokerFiles.of(settings, node)
        self._name = broker_name(node)
        self._dies_with_us = dies_with_us
        self._java = java
        self._java_options = java_options
        self._process: subprocess.Popen[bytes] | None = None
        self._announced: Service | None = None

    def __enter__(self) -> EmbeddedBroker:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def name(self) -> str:
        """The name that it announces itself by."""
        return self._name

    @property
    def node(self) -> int:
        """Its number in the cluster, from 1."""
        return self._files.node

    @property
    def service(self) -> Service | None:
        """The broker of this data folder, however it was started, or ``None`` when it does not run."""
        service = find(self._settings, self._name)
        return service if service is not None and _is_broker(service.pid, self._files) else None

    @property
    def is_running(self) -> bool:
        """True if the broker of this data folder runs and was ready."""
        return self.service is not None

    @property
    def pid(self) -> int | None:
        """Process id of the running broker."""
        service = self.service
        return None if service is None else service.pid

    def start(self) -> str:
        """Start it and wait until it answers.

        Returns:
            The address for ``bootstrap.servers``.

        Raises:
            BrokerError: it cannot be fetched or started; says why and what to do. No process is left behind.
        """
        try:
            private_folder(self._files.folder)
            private_folder(self._files.log_folder)
            with exclusive(self._files.lock):
                running = self.service
                return running.address if running is not None else self._start()
        except OSError as error:
            raise BrokerError(
                f"the broker cannot use the data folder {self._settings.data_dir}: {error}.",
                next_step="Make it writable, free space, or name another with LIGHTSTREAM_DATA_DIR.",
            ) from error

    def announce_again(self) -> None:
        """Announce the broker that this object started, where its announcement is gone and it runs."""
        announced, process = self._announced, self._process
        if announced is None or process is None or process.pid != announced.pid or process.poll() is not None:
            return
        if find(self._settings, self._name) is None:
            announce(self._settings, announced, is_stacks_own=True)

    def stop(self) -> None:
        """Stop it in good order; nothing happens when it does not run.

        Raises:
            BrokerError: it is still there after a stop and a kill.
        """
        service = self.service
        if service is not None:
            _signal(service.pid, signal.SIGTERM)
            if not self._ends_within(service.pid, STOP_TIMEOUT_S):
                self.kill()
            withdraw(self._settings, self._name, service.pid)
        process = self._process
        if process is not None and process.poll() is None:
            process.kill()  # it is still starting and has nothing to lose
            process.wait()

    def wait(self) -> int | None:
        """Block until the broker that this object started has ended.

        Returns:
            Its exit status (negative: the signal that ended it), or ``None`` if this object started none.
        """
        process = self._process
        return None if process is None else process.wait()

    def kill(self) -> None:
        """``kill -9``: no good-byes. What was acknowledged is there at the next start.

        Raises:
            BrokerError: the process does not go away.
        """
        service = self.service
        if service is None:
            return
        _signal(service.pid, signal.SIGKILL)
        if not self._ends_within(service.pid, STOP_TIMEOUT_S):
            raise BrokerError(f"process {service.pid} of the broker did not end within {STOP_TIMEOUT_S:g} s.")

    def wipe(self) -> None:
        """Stop it and delete all its records: of three brokers, wipe all.

        Raises:
            BrokerError: it cannot be stopped or the folder cannot be deleted.
        """
        self.stop()
        try:
            shutil.rmtree(self._files.folder)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise BrokerError(f"the records in {self._files.folder} cannot be deleted: {error}.") from error

    def _start(self) -> str:
        files = self._files
        require_space(files.folder)
        self._end_leftover()
        port = self._choose_port()
        jars = fetch_jars(self._settings)
        java = self._java or find_java()
        if not os.access(java, os.X_OK):
            raise BrokerError(
                f"the Java at {java} cannot be started: there is no such program, or it may not be executed.",
                next_step=f"{install_hint('broker')} brings one.",
            )
        write_text(files.log4j, log4j_properties(files))
        quorum = quorum_of(self._settings)
        if quorum is None:
            properties = server_properties(self._settings, files, port, free_port(taken=(port,)))
        else:
            ports = quorum.controller_ports
            properties = server_properties(self._settings, files, port, ports[files.node - 1], ports)
        write_text(files.properties, properties)
        prepare_records(java, jars, files, random_id() if quorum is None else quorum.cluster_id)
        log_start = files.log.stat().st_size if files.log.exists() else 0
        files.output.write_bytes(b"")
        process = spawn(
            broker_command(java, jars, files, heap_mebibytes(self._settings), self._java_options),
            log_file=files.output,
            dies_with_us=self._dies_with_us,
        )
        self._process = process
        write_text(files.pid, f"{process.pid}\n")
        address = f"127.0.0.1:{port}"
        ready = False
        try:
            ready = wait_until_ready(process, address, READY_TIMEOUT_S)
        finally:
            ended = process.poll()
            if not ready:
                process.kill()
                process.wait()
        if not ready:
            raise explain(files, log_start, ended, READY_TIMEOUT_S)
        write_text(files.port, f"{port}\n")
        self._announced = Service(self._name, address, process.pid, time.time_ns())
        announce(self._settings, self._announced, is_stacks_own=True)
        return address

    def _choose_port(self) -> int:
        """The named port, else that of the last start, else a free one.

        A broker that this object restarts has clients that know its port, so that one is waited for. At a first start
        nobody does, so a port taken by a stranger is exchanged for another unless it was named.
        """
        named = self._settings.broker_port and self._settings.broker_port + self._files.node - 1
        restarts = self._process is not None
        port = named or read_number(self._files.port)
        if not port:
            return free_port()
        deadline = time.monotonic() + (PORT_WAIT_S if restarts else 0.0)
        while not is_free(port):
            if time.monotonic() > deadline:
                if not named and not restarts:
                    return free_port()
                whose = "LIGHTSTREAM_BROKER_PORT" if named else "the port it had before"
                raise BrokerError(
                    f"port {port} ({whose}) is taken by another program.",
                    next_step="Stop that program, or name another port with LIGHTSTREAM_BROKER_PORT.",
                )
            time.sleep(POLL_INTERVAL_S)
        return port

    def _end_leftover(self) -> None:
        """End a broker of this folder whose starter died before it was ready, or whose announcement was lost."""
        pid = read_number(self._files.pid)
        if pid is not None and _is_broker(pid, self._files):
            _signal(pid, signal.SIGKILL)
            if not self._ends_within(pid, STOP_TIMEOUT_S):
                raise BrokerError(f"process {pid}, a broker left over in this data folder, does not end.")

    def _ends_within(self, pid: int, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        while True:
            if self._process is not None and self._process.pid == pid:
                self._process.poll()  # takes the zombie away
            if not _is_broker(pid, self._files):
                return True
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL_INTERVAL_S)


def _is_broker(pid: int, files: BrokerFiles) -> bool:
    """Return whether that process is the broker of these files, not a stranger with a reused process id."""
    try:
        process = psutil.Process(pid)
        return process.status() != psutil.STATUS_ZOMBIE and str(files.properties) in process.cmdline()
    except psutil.Error:
        return False


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return  # it ended by itself
