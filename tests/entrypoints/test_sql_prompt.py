"""``lightstream sql`` with named queries, values, and as a prompt, over a view that is at rest."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from lightstream.cli.sql_prompt import SqlCompleter, SqlPrompt
from lightstream.cli.view_query import ViewSource
from lightstream.runtime.processes import child_environment
from lightstream.runtime.settings import Settings
from lightstream.store_views.materialiser import default_path
from tests.store_views.log_file import open_log_file
from tests.store_views.test_accounting import state
from tests.stream_processors.assembly.build import closed, opened, proxy_span
from tests.support.waiting import eventually


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    (tmp_path / "view").mkdir()
    with open_log_file(default_path(Settings.load(data_dir=tmp_path))) as log:
        log.write(state("r1", run_id="it's"))
        failed = proxy_span(1, http_status=500, error_message="out of memory")
        log.write_and_assemble(opened(run_id="it's"), failed, closed())
    return Settings.load(data_dir=tmp_path)


def command(settings: Settings, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "lightstream.cli", "sql", *arguments],
        env=child_environment(settings),
        capture_output=True,
        text=True,
        check=False,
    )


def test_named_queries_and_values_of_the_command_line(settings: Settings) -> None:
    listed = command(settings, ":").stdout
    assert ":stuck" in listed
    assert "--seconds 60" in listed
    lost = command(settings, ":lost-calls", "--run", "it's", "--format", "csv").stdout.split("\n")
    assert lost[0].startswith("run_id,rollout_id,")
    assert lost[1].startswith("it's,r1,")
    assert command(settings, ":lost-calls", "--run=other", "--format", "json").stdout == ""
    plain = command(settings, "SELECT $text AS t, $n + 1 AS n", "--text", "x;y", "--n", "41", "--format", "csv")
    assert plain.stdout == "t,n\nx;y,42\n"
    for arguments, said in [
        ((":stuk",), "there is :stuck"),
        ((":stuck", "--rum", "x"), "has no parameter 'rum'"),
        (("SELECT 1", "--vertcal"), "'--vertcal' is no option"),
        (("SELECT 1", "again"), "'again' is no option"),
    ]:
        wrong = command(settings, *arguments)
        assert wrong.returncode == 1
        assert said in wrong.stderr


def test_what_is_typed_is_run(settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    prompt = SqlPrompt(ViewSource(settings))

    def shown(text: str) -> str:
        prompt.take(text)
        return "".join(capsys.readouterr())

    assert "r1" in shown("SELECT rollout_id\nFROM rollouts;")
    assert "call_failed" in shown(":lost-calls --limit 1;")
    assert ":stuck" in shown(":")
    assert "Every rollout in its current state." in shown("\\d")
    assert "Id of the rollout." in shown("\\d rollouts")
    assert "there is no table nothing" in shown("\\d nothing")
    assert "timing: on" in shown("\\timing")
    assert " s\n" in shown("SELECT 1;")
    assert "vertical: on" in shown("\\x")
    assert "── row 1 ──" in shown("SELECT 1 AS one;")
    assert "takes a number of seconds" in shown("\\watch often")
    assert "\\timing" in shown("\\h")
    assert "Error: there is no query :stuk" in shown(":stuk").replace("\n", " ")
    assert "Error" in shown("SELECT nothing FROM rollouts;")
    assert shown("  ") == ""
    assert not prompt.is_over


@pytest.mark.parametrize("word", ["\\q", "exit", "quit;", "EXIT", ".exit", "SELECT 1\n  FROM rollouts\n\\q"])
def test_the_prompt_ends(settings: Settings, word: str) -> None:
    prompt = SqlPrompt(ViewSource(settings))
    prompt.take(word)
    assert prompt.is_over


def test_completion_offers_columns_of_what_is_named_first(settings: Settings) -> None:
    completer = SqlCompleter(SqlPrompt(ViewSource(settings)).read_names())

    def offers(text: str) -> list[str]:
        return [one.text for one in completer.get_completions(Document(text), CompleteEvent())]

    assert offers("SELECT * FROM rollouts_l") == ["rollouts_latest"]
    assert offers("FROM rollouts WHERE sta") == ["status"]
    assert offers("sel") == ["select"]
    assert offers("SEL") == ["SELECT"]
    assert offers(":st") == [":staleness", ":step-changes", ":step-groups", ":steps", ":stuck"]
    assert offers("\\ti") == ["\\timing"]


SHOWS_WITHIN_S = 120.0
"""A fifth of what a statement may take: one that Ctrl-C does not end is a failure."""


class Terminal:
    """The prompt in a terminal of its own, and what it has shown since it was last asked to."""

    def __init__(self, settings: Settings) -> None:
        self._ours, theirs = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "lightstream.cli", "sql", "--timeout", str(5 * SHOWS_WITHIN_S)],
            env=child_environment(settings) | {"TERM": "xterm"},
            stdin=theirs,
            stdout=theirs,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # so that Ctrl-C reaches it
        )
        os.close(theirs)
        self._shown = ""

    def type(self, keys: str) -> None:
        """Press these keys."""
        os.write(self._ours, keys.encode())

    def until(self, text: str, times: int = 1) -> str:
        """The text that is shown up to this one, once it was shown that often."""
        while self._shown.count(text) < times:
            ready, _, _ = select.select([self._ours], [], [], SHOWS_WITHIN_S)
            assert ready, f"{text!r} is not shown after {self._shown!r}"
            self._shown += os.read(self._ours, 65_536).decode(errors="replace")
        *before, self._shown = self._shown.split(text, times)
        return text.join(before)

    def close(self) -> None:
        """End it, if it runs."""
        self.process.kill()
        self.process.wait()
        os.close(self._ours)


@pytest.fixture
def terminal(settings: Settings) -> Iterator[Terminal]:
    terminal = Terminal(settings)
    yield terminal
    terminal.close()


def test_the_prompt_reads_from_a_terminal_and_remembers(terminal: Terminal, settings: Settings) -> None:
    terminal.until("lightstream>")
    terminal.type("SELECT 40 +\r2 AS answer;\r")
    assert "42" in terminal.until("1 row")
    terminal.type("\\q\r")
    assert terminal.process.wait(300) == 0
    assert "+SELECT 40 +\n+2 AS answer;\n" in (settings.data_dir / "sql_history").read_text()


def test_ctrl_c_ends_the_statement_alone(terminal: Terminal) -> None:
    terminal.until("lightstream>")
    before_s = cpu_s(terminal.process)
    terminal.type("SELECT count(*) FROM range(100000000000) AS a(x) WHERE x % 7 = 3;\r")
    eventually(lambda: cpu_s(terminal.process) > before_s + 2, what="the statement's work")
    terminal.until("7 = 3")
    terminal.type("\x03")
    terminal.until("lightstream>")
    terminal.type("SELECT 40 + 3 AS answer;\r")
    assert "43" in terminal.until("1 row")


def cpu_s(process: subprocess.Popen[bytes]) -> float:
    """Seconds of processor that it has taken."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_a_statement_is_watched_until_ctrl_c(terminal: Terminal) -> None:
    terminal.until("lightstream>")
    terminal.type("SELECT 'n' || uuid() AS answer;\r")
    terminal.until("1 row")
    terminal.until("lightstream>")
    terminal.type("\\watch 0.1\r")
    answers = [re.findall(r"n[0-9a-f]{8}-[0-9a-f-]{27}", terminal.until("1 row")) for _ in range(3)]
    assert [len(found) for found in answers] == [1, 1, 1]
    assert len({found[0] for found in answers}) == 3  # asked anew each time
    terminal.type("\x03")
    terminal.until("lightstream>")
    terminal.type("SELECT 40 + 3 AS answer;\r")
    assert "43" in terminal.until("1 row")
    terminal.type("\\q\r")
    assert terminal.process.wait(300) == 0
