"""``lightstream runs`` as a process, and its table."""

from __future__ import annotations

import os
import subprocess
import sys

from lightstream.runtime.settings import Settings

__all__ = ["cells_of_run", "lightstream"]


def lightstream(settings: Settings, *arguments: str) -> str:
    """Standard output of the command, which must succeed."""
    done = subprocess.run(
        [sys.executable, "-m", "lightstream.cli", *arguments],
        env=os.environ | settings.to_environment() | {"COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def cells_of_run(settings: Settings, run: str) -> list[str]:
    """The cells of a run's row in ``lightstream runs``; none where it has no row."""
    rows = [line.split("│") for line in lightstream(settings, "runs").splitlines() if f"│ {run} " in line]
    return [cell.strip() for cell in rows[0][1:-1]] if rows else []
