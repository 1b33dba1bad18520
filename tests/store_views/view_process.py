"""The view server as a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from lightstream.runtime.services import find
from lightstream.runtime.settings import Settings
from tests.support.waiting import eventually


def start_view(settings: Settings) -> subprocess.Popen[str]:
    """A view server, perhaps not ready yet. Its output goes to a file: a pipe that nobody reads would block it."""
    command = [sys.executable, "-m", "lightstream.cli", "view"]
    environment = os.environ | settings.to_environment()
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    with output_path(settings).open("w") as output:
        return subprocess.Popen(command, env=environment, stderr=output, text=True)


def output_path(settings: Settings) -> Path:
    """What the server has said."""
    return settings.data_dir / "view.err"


def wait_until_ready(settings: Settings, process: subprocess.Popen[str]) -> str:
    """The address of the server, once it has announced itself.

    Raises:
        AssertionError: it ended, or did not within a minute.
    """

    def announced() -> str | None:
        assert process.poll() is None, output_path(settings).read_text()
        service = find(settings, "view")
        return service.address if service is not None and service.pid == process.pid else None

    address = eventually(announced, what="the view")
    assert address is not None
    return address


@contextmanager
def running_view(settings: Settings) -> Generator[subprocess.Popen[str], None, None]:
    """A view server that is ready; stopped at the end."""
    process = start_view(settings)
    try:
        wait_until_ready(settings, process)
        yield process
    finally:
        process.terminate()
        process.wait(300)
        print(output_path(settings).read_text()[-5_000:])  # shown when the test fails
