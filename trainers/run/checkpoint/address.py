"""Addresses of checkpoints in the log: relative to a root, so that they hold where the root is moved or mounted
elsewhere. A checkpoint outside of the root has an absolute one.
"""

from __future__ import annotations

from pathlib import Path

from lightstream.runtime.disk import DiskRoom
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import TrainingError

from .digest import check_digest
from .folder import CheckpointFolder

CHECKPOINTS = "checkpoints"
"""Folder within the root that has a folder for each run."""


def run_checkpoints(settings: Settings, run_id: str) -> CheckpointFolder:
    """The folder of a run's checkpoints."""
    folder = _root(settings) / CHECKPOINTS / run_id
    return CheckpointFolder(folder, DiskRoom(settings, folder, name="checkpoints"))


def address_of(settings: Settings, folder: Path) -> str:
    """The name of a folder in records."""
    absolute = folder.absolute()
    root = _root(settings)
    return absolute.relative_to(root).as_posix() if absolute.is_relative_to(root) else str(absolute)


def folder_of(settings: Settings, address: str) -> Path:
    """The folder that a record names, which may be gone.

    Records of 0.2.0 have absolute addresses. Where such a folder is gone, it is looked for below the present root.
    """
    path = Path(address.removeprefix("file://"))
    root = _root(settings)
    if not path.is_absolute():
        return root / path
    if not path.exists() and CHECKPOINTS in path.parts:
        place = len(path.parts) - 1 - path.parts[::-1].index(CHECKPOINTS)
        moved = root.joinpath(*path.parts[place:])
        if moved.exists():
            return moved
    return path


def checkpoint_folder(address: str, settings: Settings | None = None) -> Path:
    """The folder that a record's ``checkpoint_url`` names, for programs that read records; it may be gone.

    Args:
        address: relative to ``LIGHTSTREAM_CHECKPOINT_ROOT``, by default the data folder; or absolute.
        settings: ``None`` reads the environment.
    """
    return folder_of(settings or Settings.load(), address)


def existing_folder(settings: Settings, address: str | None, of: str) -> Path:
    """The folder that a record names.

    Args:
        of: whose checkpoint it is, for the error.

    Raises:
        TrainingError: it is gone, or has other weights than it was written with.
    """
    folder = folder_of(settings, address or "")
    if not address or not folder.is_dir():
        raise TrainingError(
            f"the checkpoint {address} of {of!r} is gone: there is no folder {folder}.",
            next_step="If the data folder was moved or is mounted elsewhere, name its place with LIGHTSTREAM_DATA_DIR "
            "(or LIGHTSTREAM_CHECKPOINT_ROOT). If the folder was deleted, restore it, or start a new run with another "
            "run_id and trainer_id.",
        )
    check_digest(folder)
    return folder


def _root(settings: Settings) -> Path:
    return (settings.checkpoint_root or settings.data_dir).absolute()
