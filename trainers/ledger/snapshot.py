"""A trainer's past in a local file, so that a restart reads new records alone, and not the whole log.

It is a cache: the log alone decides. A snapshot names the offsets of the last records that it contains; where the log
has other records there (a topic was made again, say), it is not used, and the log is read from its beginning.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from lightstream.runtime.files import private_folder
from lightstream.schemas.records import Record, ResourcesRecord, TrainingStep

from ..run.history import History

logger = logging.getLogger(__name__)


class Snapshot(BaseModel):
    """A past, and the offsets of the last step and the last resources in it."""

    model_config = ConfigDict(ser_json_inf_nan="constants")

    history: History
    step_offset: int
    resources_offset: int

    def is_continued_by(self, steps: Sequence[tuple[int, Record]], resources: Sequence[tuple[int, Record]]) -> bool:
        """Whether these records, read from the two offsets on, begin with the last ones of this past."""
        if not steps or not resources or self.history.resources is None:
            return False
        (step_offset, step), (resources_offset, made) = steps[0], resources[0]
        return (
            (step_offset, resources_offset) == (self.step_offset, self.resources_offset)
            and isinstance(step, TrainingStep)
            and step.ended_unix_nano == self.history.ended_unix_nano
            and isinstance(made, ResourcesRecord)
            and made == self.history.resources
        )


class SnapshotFile:
    """The file of one trainer."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> Snapshot | None:
        """The last snapshot; ``None`` where there is none that can be read."""
        try:
            return Snapshot.model_validate_json(self._path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValidationError) as error:
            logger.warning("the snapshot %s is not used: %s", self._path, str(error).splitlines()[0])
            return None

    def write(self, history: History, step_offset: int, resources_offset: int) -> None:
        """Replace the snapshot. Where that fails, the one before stays, and a restart reads more."""
        snapshot = Snapshot(history=history, step_offset=step_offset, resources_offset=resources_offset)
        temporary = self._path.with_suffix(".tmp")
        try:
            private_folder(self._path.parent)
            temporary.write_text(snapshot.model_dump_json(), "utf-8")
            os.replace(temporary, self._path)
        except OSError as error:
            logger.warning("no snapshot is written to %s: %s", self._path, error)
