"""``lightstream logs``: the logs of the data folder's processes."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import ServiceUnavailableError, SettingsError

POLL_INTERVAL_S = 0.2
SUFFIXES = (".log", ".out")
"""The broker has both: what Kafka logs, and what its Java prints."""


@dataclass(slots=True)
class _Log:
    """A file, and how far it was shown."""

    path: Path
    inode: int = 0
    shown_bytes: int = 0

    def last(self, lines: int) -> list[str]:
        """Its last lines."""
        with self.path.open("rb") as file:
            self.inode = self.path.stat().st_ino
            tail = deque(file, maxlen=lines)
            self.shown_bytes = file.tell()
        return [_text(line) for line in tail]

    def new(self) -> list[str]:
        """Whole lines that came since; from the beginning of a file that took its place."""
        status = self.path.stat()
        if status.st_ino != self.inode or status.st_size < self.shown_bytes:
            self.inode, self.shown_bytes = status.st_ino, 0
        with self.path.open("rb") as file:
            file.seek(self.shown_bytes)
            whole = [line for line in file if line.endswith(b"\n")]
        self.shown_bytes += sum(map(len, whole))
        return [_text(line) for line in whole]


def names_of_logs(settings: Settings) -> list[str]:
    """Names of services that have logs."""
    return sorted({path.stem for path in _files(settings)})


def run_logs(settings: Settings, service: str | None, lines: int, *, follows: bool) -> None:
    """Print the last lines of a service's log, or of all; with ``follows`` also new lines, until Ctrl-C.

    Raises:
        SettingsError: there is no log of that service.
        ServiceUnavailableError: there is none at all.
    """
    logs: dict[Path, _Log] = {}
    for path in _chosen(settings, service):
        logs[path] = _Log(path)
        _show(path.stem, logs[path].last(lines), prefixed=service is None)
    while follows:
        time.sleep(POLL_INTERVAL_S)
        for path in _files(settings):
            if service in (None, path.stem):
                _show(path.stem, _new(logs.setdefault(path, _Log(path))), prefixed=service is None)


def _chosen(settings: Settings, service: str | None) -> list[Path]:
    files = _files(settings)
    if not files:
        raise ServiceUnavailableError(
            f"nothing has run with the data folder {settings.data_dir}: there are no logs.",
            next_step="Start everything with `lightstream up`, or name another folder with LIGHTSTREAM_DATA_DIR.",
        )
    chosen = [path for path in files if service in (None, path.stem)]
    if not chosen:
        known = ", ".join(names_of_logs(settings))
        raise SettingsError(f"there is no log of {service!r} in {_folder(settings)}; there are: {known}.")
    return chosen


def _new(log: _Log) -> list[str]:
    try:
        return log.new()
    except FileNotFoundError:
        return []  # between two files: a process is about to begin a new one


def _show(name: str, lines: Iterable[str], *, prefixed: bool) -> None:
    for line in lines:
        sys.stdout.write(f"{name} | {line}\n" if prefixed else f"{line}\n")
    sys.stdout.flush()


def _text(line: bytes) -> str:
    return line.decode("utf-8", "replace").rstrip("\n")


def _folder(settings: Settings) -> Path:
    return settings.data_dir / "logs"


def _files(settings: Settings) -> list[Path]:
    return sorted(path for path in _folder(settings).glob("*") if path.suffix in SUFFIXES)
