"""Ctrl-C of a command, and commands that need what does not run: one message each, never a traceback."""

from __future__ import annotations

import json
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from lightstream.runtime.settings import Settings
from tests.support.processes import processes_of
from tests.support.program import END_TIMEOUT_S, Program, lightstream
from tests.support.waiting import eventually

ASKS_THE_VIEW = (
    ("sql", "SELECT 1"),
    ("explain", "r"),
    ("runs",),
    ("attach-trace", "0" * 31 + "1", "--rollout", "r"),
    ("export", "parquet", "rows.parquet"),
)
ASKS_KAFKA = (("status",), ("topics", "create"), ("replay",), ("runs", "cancel", "r"))
ATIF = {
    "schema_version": "ATIF-v1.4",
    "session_id": "s",
    "agent": {"name": "a", "version": "1"},
    "steps": [{"step_id": 1, "source": "user", "message": "hi"}],
}


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """A server that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


def _interrupted(settings: Settings, silent: socket.socket, *command: str) -> Program:
    """A command at which Ctrl-C was pressed while it waited for an answer."""
    started = Program(settings, *command)
    try:
        connection, _ = silent.accept()
        with connection:
            status = started.end(signal.SIGINT)
    finally:
        started.process.kill()
    assert status == 130, started.errors
    return started


@pytest.mark.parametrize("command", [*ASKS_THE_VIEW, *ASKS_KAFKA])
def test_ctrl_c_is_a_line_and_130(tmp_path: Path, silent: socket.socket, command: tuple[str, ...]) -> None:
    address = f"127.0.0.1:{silent.getsockname()[1]}"
    settings = Settings.load(data_dir=tmp_path, kafka_bootstrap_servers=address, view_url=f"http://{address}")
    assert _interrupted(settings, silent, *command).errors == "Interrupted.\n"
    eventually(lambda: not processes_of(tmp_path), what="no process is left")


def test_ctrl_c_while_it_still_imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = tmp_path / "modules"
    slow.mkdir()
    (slow / "typer.py").write_text(f"open({str(tmp_path / 'importing')!r}, 'w'); import time; time.sleep(600)")
    monkeypatch.setenv("PYTHONPATH", str(slow))
    started = Program(Settings.load(data_dir=tmp_path, kafka_bootstrap_servers=None), "settings")
    eventually((tmp_path / "importing").exists, what="it imports")
    assert started.end(signal.SIGINT) == 130
    assert started.errors == "Interrupted.\n"


def _says_what_to_do(command: tuple[str, ...], status: int, output: str, errors: str) -> None:
    assert status == 1, command
    (line,) = errors.splitlines()
    assert line.startswith("Error: no "), command
    assert "`lightstream up`" in line
    assert "`lightstream up --policy`" in line
    assert "Traceback" not in output


def test_without_a_view_one_message_says_what_to_do(tmp_path: Path) -> None:
    """All at once: each waits some seconds for a view that may be starting again."""
    folders = [tmp_path / str(number) for number in range(len(ASKS_THE_VIEW))]
    with ExitStack() as ended:
        started: list[Program] = []
        for folder, command in zip(folders, ASKS_THE_VIEW, strict=True):
            started.append(Program(Settings.load(data_dir=folder, kafka_bootstrap_servers=None), *command))
            ended.callback(started[-1].process.kill)
        for program, command in zip(started, ASKS_THE_VIEW, strict=True):
            _says_what_to_do(command, program.process.wait(END_TIMEOUT_S), program.output, program.errors)


@pytest.mark.parametrize(
    "command",
    [
        ("topics", "create"),
        ("replay",),
        ("runs", "cancel", "r"),
        ("worker",),
        ("view",),
        ("proxy",),
        ("gateway",),
        ("policy",),
        ("store",),
        ("import", "trace.json", "--run-id", "r"),
    ],
)
def test_without_up_one_message_says_what_to_do(
    tmp_path: Path, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "trace.json").write_text(json.dumps(ATIF))
    done = lightstream(tmp_path, *command)
    _says_what_to_do(command, done.returncode, done.stdout, done.stderr)
