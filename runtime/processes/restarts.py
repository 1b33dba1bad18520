"""Notes of processes that were started again, and why, for `lightstream status`: a file each in ``<data_dir>/run``."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..files import private_folder, write_text
from ..settings import Settings

SUFFIX = ".restarts"


@dataclass(frozen=True, slots=True)
class Restarts:
    """Restarts of one process since its supervisor began.

    Attributes:
        name: as the process announces itself.
        count: how often it was started again.
        reason: what had happened the last time.
        last_unix_nano: when that was.
    """

    name: str
    count: int
    reason: str
    last_unix_nano: int


def note_restart(settings: Settings, restarts: Restarts) -> None:
    """Replace the note about that process."""
    path = _path(settings, restarts.name)
    private_folder(path.parent)
    write_text(path, json.dumps(asdict(restarts)))


def read_restarts(settings: Settings) -> dict[str, Restarts]:
    """Return the notes, by name."""
    noted = (_read(path) for path in sorted((settings.data_dir / "run").glob(f"*{SUFFIX}")))
    return {restarts.name: restarts for restarts in noted if restarts is not None}


def forget_restarts(settings: Settings, names: Iterable[str]) -> None:
    """Count from zero again."""
    for name in names:
        _path(settings, name).unlink(missing_ok=True)


def _path(settings: Settings, name: str) -> Path:
    return settings.data_dir / "run" / f"{name}{SUFFIX}"


def _read(path: Path) -> Restarts | None:
    try:
        values: dict[str, Any] = json.loads(path.read_text("utf-8"))
        return Restarts(**values)
    except (OSError, ValueError, TypeError):
        return None  # gone, or not ours
