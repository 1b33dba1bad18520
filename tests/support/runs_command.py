"""``lightstream runs`` as a process, and its table."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from lightstream.runtime.settings import Settings


def lightstream(settings: Settings, *arguments: str, columns: int = 200) -> str:
    """Standard output of the command, which must succeed."""
    done = subprocess.run(
        [sys.executable, "-m", "lightstream.cli", *arguments],
        env=os.environ | settings.to_environment() | {"COLUMNS": str(columns)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def row_of_run(settings: Settings, run: str) -> dict[str, Any]:
    """A run as ``lightstream runs --format json`` has it; empty where it has no row."""
    rows: list[dict[str, Any]] = json.loads(lightstream(settings, "runs", "--format", "json"))
    return next((row for row in rows if row["run_id"] == run), {})


COUNTS = ("waiting", "running", "succeeded", "failed", "cancelled")


def counts_of_run(settings: Settings, run: str) -> list[int]:
    """How many rollouts of a run wait, run, succeeded, failed and were cancelled; empty where it has no row."""
    row = row_of_run(settings, run)
    return [row[name] or 0 for name in COUNTS] if row else []
