"""Runs an example as a user does: the whole system, for a few rollouts."""

from __future__ import annotations

from pathlib import Path

from lightstream.runtime.processes import child_environment
from lightstream.runtime.settings import Settings
from tests.support.forked import run_forked
from tests.support.processes import processes_of
from tests.support.waiting import eventually

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 1500.0
ACCOUNTED = "is accounted for"


def run(example: str, settings: Settings, *arguments: str) -> str:
    """What the example prints. It must end with status 0 and leave no process behind."""
    data_dir = settings.data_dir / example
    command = ["-m", f"examples.{example}", "--data-dir", str(data_dir), *arguments]
    done = run_forked(command, child_environment(settings) | {"COLUMNS": "160"}, ROOT, TIMEOUT_S)
    assert done.returncode == 0, done.stdout + done.stderr
    eventually(lambda: not processes_of(data_dir), what="no process is left")
    assert any(line.startswith("yes") and ACCOUNTED in line for line in done.stdout.splitlines()), done.stdout
    return done.stdout


def cells(output: str, first: str) -> list[str]:
    """The row of a table that begins with ``first``."""
    rows = [[cell.strip() for cell in line.strip().strip("│").split("│")] for line in output.splitlines()]
    return next(row for row in rows if row[0] == first)
