"""``lightstream sql`` and ``explain`` on terminals, into pipes and files, from a view that is at rest."""

from __future__ import annotations

import csv
import fcntl
import io
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from rich.cells import cell_len

from lightstream.cli.sql_script import statements_of
from lightstream.runtime.processes import child_environment
from lightstream.runtime.settings import Settings
from lightstream.store_views.materialiser import default_path
from tests.store_views.log_file import open_log_file
from tests.store_views.test_accounting import state
from tests.stream_processors.assembly.build import closed, opened, proxy_span


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "view").mkdir()
    with open_log_file(default_path(Settings.load(data_dir=tmp_path))) as log:
        log.write(state("r1", input_json=json.dumps("line\nline")))
        failed = proxy_span(1, http_status=500, error_message="the model server is out of memory, again and again")
        log.write_and_assemble(opened(), failed, closed())
    return {
        name: value for name, value in child_environment(Settings.load(data_dir=tmp_path)).items() if name != "COLUMNS"
    }


def command(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "lightstream.cli", *arguments], env=environment, capture_output=True, check=False
    )


def on_a_terminal(environment: dict[str, str], width: int, *arguments: str) -> list[str]:
    """What the command shows there."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-m", "lightstream.cli", *arguments],
        env=environment | {"TERM": "xterm"},
        stdin=theirs,
        stdout=theirs,
        stderr=subprocess.DEVNULL,
    )
    os.close(theirs)
    shown = b""
    try:
        while chunk := os.read(ours, 65_536):
            shown += chunk
    except OSError:  # Linux says so where the other side is closed
        pass
    finally:
        os.close(ours)
    assert process.wait(300) == 0
    return re.sub("\x1b\\[[0-9;]*m", "", shown.decode()).replace("\r\n", "\n").split("\n")


def test_a_narrow_terminal(environment: dict[str, str]) -> None:
    cut = on_a_terminal(environment, 40, "sql", "SELECT repeat('x', 300) AS text, 1 AS n")
    assert any("xxx…" in line for line in cut)
    vertical = on_a_terminal(environment, 40, "sql", "FROM rollouts")
    assert "── row 1 ──" in vertical
    explained = on_a_terminal(environment, 40, "explain", "r1")
    assert "call_failed" in "".join(explained)
    for line in (*cut, *vertical, *explained):
        assert cell_len(line) <= 40, line
    asked_for = on_a_terminal(environment, 80, "sql", "-x", "SELECT 1 AS n")
    assert [line.split() for line in asked_for[:2]] == [["──", "row", "1", "──"], ["n", "1"]]


def test_into_a_pipe_nothing_is_cut(environment: dict[str, str]) -> None:
    done = command(environment, "sql", "SELECT repeat('x', 3000) AS text")
    assert b"x" * 3000 in done.stdout


def test_a_table_shows_the_first_rows_unless_all_are_asked_for(environment: dict[str, str]) -> None:
    done = command(environment, "sql", "SELECT x FROM range(1000) t(x)")
    assert "100 rows" in done.stdout.decode()
    assert b"Only the first 100 rows are shown; --all shows all." in done.stderr
    assert " 99 " in done.stdout.decode()
    assert " 100 " not in done.stdout.decode().replace("100 rows", "")
    every = command(environment, "sql", "--all", "SELECT x FROM range(1000) t(x)")
    assert " 999 " in every.stdout.decode()
    assert b"Only the first" not in every.stderr
    as_json = command(environment, "sql", "--format", "json", "SELECT x FROM range(1000) t(x)")
    assert len(as_json.stdout.splitlines()) == 1000


def test_csv_has_plain_newlines_and_json_for_what_is_nested(environment: dict[str, str]) -> None:
    done = command(
        environment, "sql", "--format", "csv", """SELECT 1 AS n, 'a"b,c' AS t, NULL AS z, MAP {'k': 1.5} AS m"""
    )
    assert b"\r" not in done.stdout
    assert done.stdout.endswith(b"\n")
    assert list(csv.reader(io.StringIO(done.stdout.decode()))) == [
        ["n", "t", "z", "m"],
        ["1", 'a"b,c', "", '{"k": 1.5}'],
    ]


SCRIPT = """
-- two; statements
SELECT 'a;b' AS "c;d"; /* none; here */;
:lost-calls --limit 1
SELECT 1 AS a, 2 AS a, 3 AS a_1
"""


def script(environment: dict[str, str], text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "lightstream.cli", "sql", *arguments],
        env=environment, input=text, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_statements_come_from_a_pipe_or_a_file(environment: dict[str, str], tmp_path: Path) -> None:
    assert list(statements_of(SCRIPT)) == [
        "-- two; statements\nSELECT 'a;b' AS \"c;d\"",
        ":lost-calls --limit 1",
        "SELECT 1 AS a, 2 AS a, 3 AS a_1",
    ]
    piped = script(environment, SCRIPT, "--format", "json")
    assert piped.returncode == 0, piped.stderr
    first, lost, last = map(json.loads, piped.stdout.splitlines())
    assert (first, lost["rollout_id"], last) == ({"c;d": "a;b"}, "r1", {"a": 1, "a_1": 2, "a_1_1": 3})
    (tmp_path / "script.sql").write_text(SCRIPT)
    assert script(environment, "", "-f", str(tmp_path / "script.sql"), "--format", "json").stdout == piped.stdout
    assert script(environment, SCRIPT, "-", "--format", "json").stdout == piped.stdout


def test_a_script_ends_with_what_fails(environment: dict[str, str]) -> None:
    failed = script(environment, "SELECT 1 AS one; SELECT nothing; SELECT 2 AS two;", "--format", "csv")
    assert (failed.returncode, failed.stdout) == (1, "one\n1\n")
    assert "nothing" in failed.stderr
    missing = script(environment, "", "-f", "no.sql")
    assert (missing.returncode, missing.stdout) == (1, "")
    assert "no.sql cannot be read" in missing.stderr
