"""All of Lightstream on one machine."""

from __future__ import annotations

import fcntl
import os
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from lightstream.broker import EmbeddedBroker, EmbeddedBrokers
from lightstream.producers.otlp.gateway.listeners import CONVENTIONAL_PORTS, GRPC, HTTP, open_listeners
from lightstream.runtime.clock import SystemClock
from lightstream.runtime.disk import DiskRoom
from lightstream.runtime.files import close_to_others, private_folder, read_number, write_text
from lightstream.runtime.kafka import KafkaContact, create_topics
from lightstream.runtime.ports import free_port, is_free
from lightstream.runtime.processes import (
    ProcessUnit,
    RestartPolicy,
    Restarts,
    Supervisor,
    forget_restarts,
    note_restart,
    stopped_while_starting,
)
from lightstream.runtime.services import find
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import BrokerError, ServiceUnavailableError, SettingsError

SERVICES = ("worker", "view", "policy", "proxy", "gateway")
"""The services that a stack can run besides the broker, in starting order."""

DEFAULT_SERVICES = ("worker", "view", "proxy")
"""The services that training needs. (`lightstream up` runs the gateway as well.)"""
SILENT_S_MAX = 15.0
"""After which a process that does not answer is started again: it is back within half a minute."""
OWN_FOLDERS = (
    "broker",
    "broker-2",
    "broker-3",
    "checkpoints",
    "large-records",
    "logs",
    "recovery",
    "run",
    "view",
    "worker",
)
"""In the data folder. Versions before 0.3 left them open to every user of the machine."""

PORT_SETTINGS = {
    "view": ("view_port", "view_flight_port"),
    "policy": ("policy_port",),
    "proxy": ("proxy_port",),
    "gateway": ("gateway_port", "gateway_grpc_port"),
}
PREFERRED_PORTS = {"gateway_port": CONVENTIONAL_PORTS[HTTP], "gateway_grpc_port": CONVENTIONAL_PORTS[GRPC]}
"""Taken where no setting says otherwise and nobody else has them: what OTLP clients try by themselves."""


def with_kept_ports(settings: Settings, services: Iterable[str]) -> Settings:
    """The settings with a port for each of these services that has none named: the last one used here, if free."""
    chosen: dict[str, int] = {}
    for setting in (setting for name in services for setting in PORT_SETTINGS.get(name, ())):
        named: int | None = getattr(settings, setting)
        if named:
            continue
        file = _port_file(settings, setting)
        port = read_number(file) or (PREFERRED_PORTS.get(setting) if named is None else None)
        if port is None or port in chosen.values() or not is_free(port):
            port = free_port(taken=chosen.values())
        private_folder(file.parent)
        write_text(file, f"{port}\n")
        chosen[setting] = port
    return settings.model_copy(update=chosen)


def _port_file(settings: Settings, setting: str) -> Path:
    return settings.data_dir / "run" / f"{setting.removesuffix('_port')}.port"


@dataclass(frozen=True, slots=True)
class PolicyOptions:
    """Options of the policy server.

    Attributes:
        checkpoint: folder of the model to serve until a trainer publishes one.
        run_id: whose resources it follows; empty means all runs.
    """

    checkpoint: Path | None = None
    run_id: str = ""

    def arguments(self) -> list[str]:
        """Command line after ``lightstream policy``."""
        arguments: list[str] = []
        if self.checkpoint is not None:
            arguments += ["--checkpoint", str(self.checkpoint)]
        if self.run_id:
            arguments += ["--run-id", self.run_id]
        return arguments


class BrokerUnit:
    """An embedded broker as a unit."""

    def __init__(self, broker: EmbeddedBroker, settings: Settings) -> None:
        self.name = broker.name
        self._broker = broker
        self._is_alone = settings.brokers == 1
        self._contact = KafkaContact(settings)
        self._room = DiskRoom(settings)
        self._stopping = threading.Event()

    @property
    def pid(self) -> int | None:
        return self._broker.pid

    def start(self) -> None:
        if not self._broker.is_running and (reason := self._room()) is not None:
            raise BrokerError(f"the broker is not started: {reason}.")
        self._broker.start()
        if self._stopping.is_set():
            self._broker.stop()
            raise stopped_while_starting(self.name)

    def look_after(self, why_ended: Callable[[str], None]) -> None:
        self._broker.announce_again()
        if self._broker.pid is not None and (reason := self._room()) is not None:
            why_ended(f"was stopped: {reason}")
            self._broker.stop()

    def answers(self, timeout_s: float) -> bool:
        # Of several, another would answer in its place: the cluster leaves out one that has not told that it lives.
        is_counted = self._is_alone or self._broker.node in self._contact.brokers(timeout_s)
        return is_counted and self._contact.answers(timeout_s)

    def wait(self) -> int | None:
        return self._broker.wait()

    def kill(self) -> None:
        self._broker.kill()

    def stop(self) -> None:
        self._stopping.set()
        self._broker.stop()


class Stack:
    """The broker (unless a cluster is named), the topics, and our services, kept running until :meth:`stop`.

        with Stack(settings, policy=PolicyOptions()) as stack:
            Trainer(settings=stack.settings, …).fit(…)

    Args:
        settings: for all processes. An embedded broker that runs already is used and left running.
        services: which of ``SERVICES`` to run.
        policy: run the policy server too, with these options.
        programs: further processes to keep running, name -> path and arguments. Each announces itself under its name
            (:func:`lightstream.runtime.services.announce`) when it is ready, and ends on SIGTERM. One with an
            ``http`` address is asked for ``/healthz`` there, and started again where nothing answers for 15 s.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        services: Sequence[str] = DEFAULT_SERVICES,
        policy: PolicyOptions | None = None,
        programs: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        unknown = sorted(set(services) - set(SERVICES))
        if unknown:
            raise SettingsError(f"there is no service {', '.join(unknown)}; there are {', '.join(SERVICES)}.")
        requested = set(services) | ({"policy"} if policy is not None else set())
        self._services = [name for name in SERVICES if name in requested]
        self._policy = policy or PolicyOptions()
        self._programs = dict(programs or {})
        if settings.sql_view and "view" in requested:
            self._programs |= {"view-sql": [sys.executable, "-m", "lightstream.cli", "view", "--name", "sql"]}
        self._given = settings
        self._settings: Settings | None = None
        self._claims = ExitStack()
        self._supervisor = Supervisor(RestartPolicy(silent_s_max=SILENT_S_MAX), self._note_restart)

    def __enter__(self) -> Stack:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def settings(self) -> Settings:
        """The settings with the addresses of the cluster and the services filled in; known once started."""
        if self._settings is None:
            raise ServiceUnavailableError("this stack was not started.", next_step="Call start() first.")
        return self._settings

    @property
    def supervisor(self) -> Supervisor:
        """The supervisor that keeps the processes running."""
        return self._supervisor

    @property
    def names(self) -> list[str]:
        """The names of the supervised units, in starting order."""
        return self._supervisor.names

    def start(self) -> None:
        """Start everything and return once all is ready. A stack is started once.

        Raises:
            LightstreamError: something could not be started; what was started is stopped again.
        """
        self._claim()
        try:
            self._refuse_what_runs()
            forget_restarts(self._given, [*self._broker_names(), *self._services, *self._programs])
            settings = with_kept_ports(self._with_kafka(), self._services)
            create_topics(settings)
            self._settings = settings
            units = [ProcessUnit(name, program, settings) for name, program in self._programs.items()]
            units = [*(self._unit(name, settings) for name in self._services), *units]
            self._supervisor.start(units)
        except BaseException:
            self.stop()
            raise

    def kill(self, name: str) -> None:
        """``kill -9`` one of ``names``; it is gone when this returns, and will be started again."""
        self._supervisor.kill(name)

    def wait_ready(self, name: str, timeout_s: float = 120.0) -> None:
        """Wait until one of ``names`` is ready (again); raises ServiceUnavailableError when it is not in time."""
        self._supervisor.wait_ready(name, timeout_s)

    def stop(self) -> None:
        """Stop all, the broker last; returns when no process is left. May be called twice."""
        self._supervisor.stop()
        self._claims.close()

    def _claim(self) -> None:
        """Have the names for this stack alone; the kernel lets go of them when this process dies."""
        folder = self._given.data_dir / "run"
        private_folder(folder)
        close_to_others(self._given.data_dir / name for name in OWN_FOLDERS)
        with ExitStack() as claims:
            for name in sorted({*self._services, *self._programs}):
                file = claims.enter_context((folder / f"{name}.lock").open("a+"))
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError as error:
                    file.seek(0)
                    raise ServiceUnavailableError(
                        f"process {file.read().strip() or '?'} keeps the {name} of the data folder "
                        f"{self._given.data_dir} running already (`lightstream up`).",
                        next_step="Use that one, stop it first, or name another folder with LIGHTSTREAM_DATA_DIR.",
                    ) from error
                file.truncate(0)
                file.write(f"{os.getpid()}\n")
                file.flush()
            self._claims = claims.pop_all()

    def _note_restart(self, name: str, count: int, reason: str) -> None:
        note_restart(self._given, Restarts(name, count, reason, SystemClock().now_unix_nano()))

    def _broker_names(self) -> list[str]:
        return [broker.name for broker in EmbeddedBrokers(self._given).each]

    def _refuse_what_runs(self) -> None:
        """Before anything is started or a port taken."""
        running = [find(self._given, name) for name in (*self._services, *self._programs)]
        named = [f"a {service.name} (process {service.pid})" for service in running if service is not None]
        if named:
            raise ServiceUnavailableError(
                f"{' and '.join(named)} already {'runs' if len(named) == 1 else 'run'} with the data folder "
                f"{self._given.data_dir}.",
                next_step="Stop that first, or name another folder with LIGHTSTREAM_DATA_DIR.",
            )

    def _with_kafka(self) -> Settings:
        if self._given.kafka_bootstrap_servers:
            return self._given
        brokers = EmbeddedBrokers(self._given)
        stopped = [broker for broker in brokers.each if not broker.is_running]
        if stopped:
            self._supervisor.start([BrokerUnit(broker, self._given) for broker in stopped])
        # The ports stay the same over restarts, so the children need not look for them.
        large = self._given.large_records_dir or self._given.data_dir.resolve() / "large-records"
        return self._given.model_copy(update={"kafka_bootstrap_servers": brokers.start(), "large_records_dir": large})

    def _unit(self, name: str, settings: Settings) -> ProcessUnit:
        arguments = self._policy.arguments() if name == "policy" else []
        # While the gateway is started again its clients wait in the queues of sockets that stay open here.
        listeners = open_listeners(settings).by_name() if name == "gateway" else None
        program = [sys.executable, "-m", "lightstream.cli", name, *arguments]
        return ProcessUnit(name, program, settings, listeners=listeners)
