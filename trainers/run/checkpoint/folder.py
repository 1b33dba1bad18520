"""The folder of a run's checkpoints: each appears at once, durable, and never changes."""

from __future__ import annotations

import os
import shutil
import threading
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path

from lightstream.runtime.disk import DiskRoom
from lightstream.runtime.files import private_folder
from lightstream.schemas.errors import TrainingError

from .digest import digest_of

UNFINISHED_PREFIX = ".unfinished-"
DELETED_PREFIX = ".deleted-"


class CheckpointFolder:
    """The checkpoints of one run: ``<root>/step-000007-1a2b3c4d-0123456789ab``.

    The random part makes each name unique: a step that is made again after a crash, or by a process that has been
    fenced, never touches a folder that the ledger names. The last part is the digest of the weights.

    Args:
        room: on the disk, which :meth:`write` waits for.
    """

    def __init__(self, root: Path, room: DiskRoom | None = None) -> None:
        self.root = root
        self._room = room

    def write(self, step: int, fill: Callable[[Path], None]) -> Path:
        """Make the checkpoint of a step, once the disk has room for one as large as the last one here.

        Args:
            step: the step, 0 for the initial model.
            fill: writes the files into the (empty) folder it is given.

        Returns:
            The folder; all of it is on the disk.

        Raises:
            TrainingError: the disk is full or away; no checkpoint has appeared.
        """
        if self._room is not None:
            self._room.wait(threading.Event(), self._last_bytes())
        name = f"step-{step:06d}-{uuid.uuid4().hex[:8]}"
        unfinished = self.root / f"{UNFINISHED_PREFIX}{name}"
        try:
            private_folder(self.root)
            unfinished.mkdir(mode=0o700)
            fill(unfinished)
            for path in unfinished.rglob("*"):
                _sync(path)
            _sync(unfinished)
            finished = self.root / f"{name}-{digest_of(unfinished)}"
            os.replace(unfinished, finished)
            _sync(self.root)
        except BaseException as error:
            shutil.rmtree(unfinished, ignore_errors=True)
            if isinstance(error, OSError):
                raise TrainingError(
                    f"the checkpoint of step {step} cannot be written to {self.root}: {error}.",
                    next_step="Make room there: the same command goes on after the last committed step.",
                ) from error
            raise
        return finished

    def _last_bytes(self) -> int:
        """Size of the newest checkpoint here; 0 where there is none."""
        if not self.root.is_dir():
            return 0
        newest = max((path for path in self.root.iterdir() if not path.name.startswith(".")), default=None)
        if newest is None:
            return 0
        return sum(path.stat().st_size for path in newest.rglob("*") if path.is_file())

    def keep_only(self, kept: Iterable[Path]) -> list[Path]:
        """Delete everything here except ``kept``: older checkpoints, and checkpoints of steps that were never
        committed.

        Returns:
            What was deleted.
        """
        if not self.root.is_dir():
            return []
        keep = {path.resolve() for path in kept}
        deleted: list[Path] = []
        for path in sorted(self.root.iterdir()):
            if path.resolve() in keep or not path.is_dir():
                continue
            doomed = path
            if not path.name.startswith("."):
                doomed = path.with_name(f"{DELETED_PREFIX}{path.name}")
                os.replace(path, doomed)  # gone at once: nobody finds half a checkpoint
            shutil.rmtree(doomed, ignore_errors=True)
            deleted.append(path)
        return deleted


def link_or_copy(source: Path, target: Path) -> None:
    """A second name for a file that never changes; a copy where the file system has no links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
