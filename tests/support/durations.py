"""How long each file of tests took the last time that somebody measured it, in ``tests/durations.txt``."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

TABLE = Path(__file__).parents[1] / "durations.txt"


def read_durations() -> dict[str, int]:
    """File -> seconds. Files below half a second are not listed."""
    lines = (line.split(" ", 1) for line in TABLE.read_text("utf-8").splitlines())
    return {file: int(seconds) for seconds, file in lines}


def write_durations(reports: Iterable[pytest.TestReport]) -> None:
    """Add up set-up, call and end of all tests, by file; the longest file is first."""
    seconds: dict[str, float] = {}
    for report in reports:
        file = report.location[0]
        seconds[file] = seconds.get(file, 0.0) + report.duration
    table = sorted(((round(total), file) for file, total in seconds.items()), key=lambda row: (-row[0], row[1]))
    TABLE.write_text("".join(f"{total} {file}\n" for total, file in table if total), "utf-8")
