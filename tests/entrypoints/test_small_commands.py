"""The version, completion in a shell, logs."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from importlib.metadata import version
from pathlib import Path

import pytest

from lightstream.runtime.services import discover
from lightstream.runtime.settings import Settings
from lightstream.schemas import __version__
from tests.support.program import Program, lightstream, program
from tests.support.waiting import eventually


def test_the_version(tmp_path: Path) -> None:
    shown = lightstream(tmp_path, "--version").stdout
    assert re.fullmatch(rf"lightstream-rl {re.escape(__version__)}( \(commit [0-9a-f]{{7,}}\))?\n", shown)
    assert __version__ == version("lightstream-rl")


def _completed_by_bash(tmp_path: Path, *words: str) -> list[str]:
    """What bash offers where the cursor is at the end of the last word."""
    command = tmp_path / "bin" / "lightstream"
    command.parent.mkdir(exist_ok=True)
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m lightstream.cli "$@"\n')
    command.chmod(0o755)
    program = (
        'source <(lightstream completion bash); COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))\n'
        '_lightstream_completion lightstream; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    environment = os.environ | {
        "PATH": f"{command.parent}:{os.environ['PATH']}",
        "LIGHTSTREAM_DATA_DIR": str(tmp_path),
    }
    done = subprocess.run(
        ["bash", "-c", program, "bash", *words], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes_commands_options_and_logs(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "worker.log").touch()
    assert _completed_by_bash(tmp_path, "lightstream", "expl") == ["explain"]
    assert {"cancel"} <= set(_completed_by_bash(tmp_path, "lightstream", "runs", ""))
    assert _completed_by_bash(tmp_path, "lightstream", "up", "--check") == ["--checkpoint"]
    assert _completed_by_bash(tmp_path, "lightstream", "logs", "w") == ["worker"]


@pytest.mark.parametrize(
    ("shell", "said"), [("zsh", "#compdef lightstream"), ("fish", "complete --command lightstream")]
)
def test_other_shells_have_a_script(tmp_path: Path, shell: str, said: str) -> None:
    assert said in lightstream(tmp_path, "completion", shell).stdout


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "view.log").write_text("".join(f"view {number}\n" for number in range(100)))
    (folder / "worker.log").write_bytes(b"one\ntw\xff\n")
    (folder / "broker.out").write_text("java\n")
    (folder / "view.log.1").write_text("of before\n")
    return folder


def test_logs_of_one_and_of_all(tmp_path: Path, logs: Path) -> None:
    assert lightstream(tmp_path, "logs", "view", "-n", "2").stdout == "view 98\nview 99\n"
    everything = lightstream(tmp_path, "logs", "--lines", "1").stdout
    assert everything == "broker | java\nview | view 99\nworker | tw\ufffd\n"


def test_logs_that_there_are_not(tmp_path: Path, logs: Path) -> None:
    done = lightstream(tmp_path, "logs", "veiw")
    assert done.returncode == 1
    assert "there are: broker, view, worker" in done.stderr
    done = lightstream(tmp_path / "elsewhere", "logs")
    assert done.returncode == 1
    assert "lightstream up" in done.stderr


def test_logs_go_on_with_what_comes(tmp_path: Path, logs: Path) -> None:
    settings = Settings.load(data_dir=tmp_path, kafka_bootstrap_servers=None)
    followed = Program(settings, "logs", "-f", "-n", "1")
    try:
        eventually(lambda: "view | view 99" in followed.output, what="the last lines")
        with (logs / "view.log").open("a") as file:
            file.write("more, and a half")
            file.flush()
            (logs / "policy.log").write_text("new\n")
            eventually(lambda: "policy | new\n" in followed.output, what="the log of a process started since")
            file.write(" line\n")
        eventually(lambda: "view | more, and a half line\n" in followed.output, what="a whole line")
        (logs / "view.log").replace(logs / "view.log.1")
        (logs / "view.log").write_text("begun again\n")
        eventually(lambda: "view | begun again\n" in followed.output, what="the file that took its place")
        (logs / "view.log").write_text("cut\n")
        eventually(lambda: "view | cut\n" in followed.output, what="the same file, cut while its process runs")
    finally:
        status = followed.end(signal.SIGINT)
    assert status == 130
    assert "Traceback" not in followed.errors


@pytest.fixture
def taken() -> Iterator[None]:
    """OTLP's usual ports are somebody's."""
    with ExitStack() as stack:
        for port in (4317, 4318):
            with suppress(OSError):  # they are already
                stack.enter_context(socket.create_server(("127.0.0.1", port)))
        yield


@pytest.mark.usefixtures("taken")
def test_other_ports_than_the_usual_ones_are_said(tmp_path: Path) -> None:
    settings = Settings.load(data_dir=tmp_path, kafka_bootstrap_servers=None)
    with program(settings, "up", "--no-worker", "--no-view", "--no-proxy") as up:
        eventually(lambda: "Ctrl-C stops everything" in up.output or up.process.poll() is not None)
        for port, name in ((4318, "gateway"), (4317, "gateway-grpc")):
            address = discover(settings, name).address
            assert f"is at {address}, since the usual port {port} is taken" in up.output
