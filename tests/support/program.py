"""``lightstream …`` as a person starts it: a process of its own, ended by Ctrl-C."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from lightstream.runtime.processes import child_environment
from lightstream.runtime.services import running_services
from lightstream.runtime.settings import Settings
from tests.support.waiting import eventually

COMMAND = [sys.executable, "-m", "lightstream.cli"]

END_TIMEOUT_S = 300.0
"""Of a program that was told to end: ``up`` gives the worker 20 s and the broker 30 s before it kills them."""


class Program:
    """One that runs; its standard output and error are files."""

    def __init__(self, settings: Settings, *arguments: str) -> None:
        settings.data_dir.mkdir(parents=True, exist_ok=True)
        self._settings = settings
        self._output_file = settings.data_dir / f"{arguments[0]}.out"
        self._errors_file = settings.data_dir / f"{arguments[0]}.err"
        with self._output_file.open("wb") as output, self._errors_file.open("wb") as errors:
            self.process = subprocess.Popen(
                [*COMMAND, *arguments],
                env=child_environment(settings) | {"PYTHONFAULTHANDLER": "1"},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                start_new_session=True,
            )

    @property
    def output(self) -> str:
        return self._output_file.read_text()

    @property
    def errors(self) -> str:
        return self._errors_file.read_text()

    def wait_for(self, *services: str) -> None:
        """Until all of these run; it fails where the program ends before."""
        eventually(
            lambda: self.process.poll() is not None or set(services) <= self._running(),
            what=f"{', '.join(services)} run",
        )
        assert self.process.poll() is None, self.output + self.errors

    def end(self, number: signal.Signals = signal.SIGINT) -> int:
        """Send a signal and return the exit status; fails with the stacks of its threads where it does not end."""
        self.process.send_signal(number)
        try:
            return self.process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGABRT)
            self.process.wait()
            raise AssertionError(f"{number.name} did not end it:\n{self.output}{self.errors}") from None

    def _running(self) -> set[str]:
        return {service.name for service in running_services(self._settings)}


@contextmanager
def program(settings: Settings, *arguments: str) -> Generator[Program]:
    """Start it, and end it if it still runs at the end."""
    started = Program(settings, *arguments)
    try:
        yield started
    finally:
        if started.process.poll() is None:
            started.end()


def lightstream(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end with this data folder and no broker named."""
    environment = child_environment(Settings.load(data_dir=folder, kafka_bootstrap_servers=None)) | variables
    return subprocess.run([*COMMAND, *arguments], env=environment, capture_output=True, text=True, check=False)
