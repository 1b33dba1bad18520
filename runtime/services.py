"""Lightstream processes on this machine and their addresses: one small JSON file each in ``<data_dir>/run``.

A server announces itself once it accepts connections and withdraws when it stops; whoever looks for it also checks
that the process is alive, and no other one to which the system gave that process id since, so a file left by a killed
process misleads nobody. A name belongs to the process that has it until that ends: a second one of the same name
serves, and is not found by it. An LLM proxy inside a program of the user's announces nothing.
"""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from lightstream.schemas.errors import ServiceUnavailableError

from .files import exclusive, private_folder
from .settings import ENVIRONMENT_PREFIX, Settings

LOCK_FILE = "announcements.lock"
"""Held while an announcement is written or removed."""

STATE, START_TICKS = 0, 19
"""Places of ``state`` and ``starttime`` (``proc_pid_stat(5)``), counted from after the program's name."""


@dataclass(frozen=True, slots=True)
class Service:
    """One running process.

    Attributes:
        name: ``broker``, ``worker``, ``view``, ``proxy``, ``policy``, …; one process per name and data folder.
        address: URL of an HTTP server, ``host:port`` of the broker, or empty for a process without a port.
        pid: its process id.
        started_unix_nano: when it was ready.
        process_start_ticks: when the system made the process (``starttime`` of ``proc_pid_stat(5)``), which tells it
            from a later one with that id; :func:`announce` fills it in. 0 where it is not known.
        health: URL that answers ``/healthz`` while the process is busy, too; empty where ``address`` alone does.
    """

    name: str
    address: str
    pid: int
    started_unix_nano: int
    process_start_ticks: int = 0
    health: str = ""

    @property
    def is_alive(self) -> bool:
        """True if the process exists (a zombie, or another process with its id, does not count)."""
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        fields = _stat_fields(self.pid)
        if fields is None:
            return True
        is_that_one = self.process_start_ticks in (0, int(fields[START_TICKS]))
        return is_that_one and fields[STATE] != "Z"


FIELDS = frozenset(field.name for field in fields(Service))


def announce(settings: Settings, service: Service, *, is_stacks_own: bool = False) -> bool:
    """Announce that ``service`` accepts work, atomically.

    Args:
        is_stacks_own: the name is this process's, whoever else has it.

    Returns:
        False, and nothing happens, where another process has that name and is alive.
    """
    folder = _folder(settings)
    private_folder(folder)
    with exclusive(folder / LOCK_FILE):
        present = find(settings, service.name)
        if present is not None and present.pid != service.pid and not is_stacks_own:
            return False
        _write(folder, service)
    return True


def _write(folder: Path, service: Service) -> None:
    handle, temporary = tempfile.mkstemp(dir=folder, suffix=".tmp")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        fields = _stat_fields(service.pid)
        ticks = 0 if fields is None else int(fields[START_TICKS])
        json.dump(asdict(replace(service, process_start_ticks=ticks)), file)
    os.replace(temporary, folder / f"{service.name}.json")


def withdraw(settings: Settings, name: str, pid: int) -> None:
    """Remove the announcement of ``name`` if it is that process's; otherwise nothing happens."""
    file = _folder(settings) / f"{name}.json"
    if not file.exists():
        return
    with exclusive(_folder(settings) / LOCK_FILE):
        service = _read(file)
        if service is not None and service.pid == pid:
            file.unlink(missing_ok=True)


_COMMANDS = {"broker": "broker start", "gateway-grpc": "gateway", "flight-sql": "view"}
"""Commands of the services that have another name than their command."""


def _command(name: str) -> str:
    for prefix in ("view-", "flight-sql-"):
        if name.startswith(prefix):
            return f"view --name {name.removeprefix(prefix)}"
    return _COMMANDS.get(name, name)


def was_announced(settings: Settings, name: str, pid: int) -> bool:
    """Return whether that process has announced itself under this name, and did not withdraw. It may have ended."""
    service = _read(_folder(settings) / f"{name}.json")
    return service is not None and service.pid == pid


def find(settings: Settings, name: str) -> Service | None:
    """The live process of that name, or ``None``."""
    service = _read(_folder(settings) / f"{name}.json")
    return service if service is not None and service.is_alive else None


def discover(settings: Settings, name: str) -> Service:
    """As :func:`find`, but a process that is not there is an error.

    Raises:
        ServiceUnavailableError: it does not run here; says how to start it.
    """
    service = find(settings, name)
    if service is None:
        raise ServiceUnavailableError(
            f"no {name} runs with the data folder {settings.data_dir}.",
            next_step=f"Start everything with `lightstream up` (for training `lightstream up --policy`), or it alone "
            f"with `lightstream {_command(name)}`{_or_named(name)}.",
        )
    return service


def _or_named(name: str) -> str:
    """How to use one that runs elsewhere, where a setting says where."""
    setting = f"{name}_url"
    named = f", or name one that runs elsewhere with {ENVIRONMENT_PREFIX}{setting.upper()}"
    return named if setting in Settings.model_fields else ""


def otlp_traces_url(settings: Settings) -> str:
    """URL for traces of OTLP/HTTP clients: of the gateway that the settings name, else of the one that runs here.

    Raises:
        ServiceUnavailableError: there is none.
    """
    address = settings.gateway_url or discover(settings, "gateway").address
    return f"{address.rstrip('/')}/v1/traces"


def running_services(settings: Settings) -> list[Service]:
    """Every announced process that is alive, by name."""
    found = (_read(path) for path in sorted(_folder(settings).glob("*.json")))
    return [service for service in found if service is not None and service.is_alive]


def _stat_fields(pid: int) -> list[str] | None:
    """The fields of ``/proc/PID/stat`` after the name; ``None`` where there are none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("ascii", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None


def _folder(settings: Settings) -> Path:
    return settings.data_dir / "run"


def _read(path: Path) -> Service | None:
    try:
        values: dict[str, Any] = json.loads(path.read_text("utf-8"))
        return Service(**{name: value for name, value in values.items() if name in FIELDS})  # a later version has more
    except (OSError, ValueError, TypeError):
        return None  # gone, or not ours: the same as not announced
