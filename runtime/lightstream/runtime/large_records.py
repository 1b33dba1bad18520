"""Stores trajectories that are too large for a Kafka record in a file; the record has the file's address.

The file is the encoded trajectory, under a name from its SHA-256: the same trajectory is the same file, and nothing is
ever written over. A topic's files have a folder of their own, and are deleted by age: each is as young as the last
record that was about to name it.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from lightstream.schemas.codec import Codec
from lightstream.schemas.errors import ArtefactError, DecodeError
from lightstream.schemas.records import Trajectory
from lightstream.schemas.topics import TRAJECTORIES

from .artefacts import resolve
from .settings import Settings

__all__ = ["Swept", "large_records_folder", "put_aside", "sweep", "whole_trajectory"]

SUFFIX = ".avro"
UNFINISHED = ".part"
UNFINISHED_S_MAX = 3600.0
"""Writing a file takes seconds; what is still unfinished after this long was left by a process that died."""

_IN_THE_FILE_ONLY = {"input_json": "null", "rewards": [], "triplets": [], "images": [], "drops": [], "notes": []}


def large_records_folder(settings: Settings) -> Path | None:
    """The folder of large trajectories of this topic prefix; ``None`` where the settings name none."""
    folder = settings.large_records_dir
    return None if folder is None else folder / TRAJECTORIES.full_name(settings.topic_prefix)


def put_aside(trajectory: Trajectory, codec: Codec, folder: Path) -> Trajectory:
    """Write the whole trajectory to ``folder``, durably, and return the record to publish in its place.

    Raises:
        OSError: it cannot be written; nothing is left behind.
    """
    encoded = codec.encode(trajectory)
    digest = hashlib.sha256(encoded).hexdigest()
    path = folder.resolve() / digest[:2] / f"{digest}{SUFFIX}"
    if path.is_file() and path.stat().st_size == len(encoded):
        os.utime(path)
    else:
        _write(path, encoded)
    address = {"payload_url": path.as_uri(), "payload_sha256": digest, "payload_size_bytes": len(encoded)}
    return trajectory.model_copy(update=_IN_THE_FILE_ONLY | address)


def whole_trajectory(trajectory: Trajectory, codec: Codec) -> Trajectory:
    """The whole trajectory of a record; the record itself where nothing was left out.

    Raises:
        ArtefactError: the file is not there, or not what was written.
    """
    url = trajectory.payload_url
    if not url:
        return trajectory
    path = resolve(url, trajectory.payload_sha256, trajectory.payload_size_bytes)
    try:
        whole = codec.decode(path.read_bytes())
    except DecodeError as error:
        raise ArtefactError(url, f"is not a trajectory: {error}.") from error
    except OSError as error:
        raise ArtefactError(url, f"cannot be read: {error}.") from error
    kept = (trajectory.rollout_id, trajectory.attempt_id, trajectory.revision)
    if not isinstance(whole, Trajectory) or (whole.rollout_id, whole.attempt_id, whole.revision) != kept:
        raise ArtefactError(url, f"is not the trajectory {kept} that the record names.")
    address = ("payload_url", "payload_sha256", "payload_size_bytes")
    return whole.model_copy(update={name: getattr(trajectory, name) for name in address})


@dataclass(frozen=True, slots=True)
class Swept:
    """The number of files that were deleted."""

    files: int = 0
    size_bytes: int = 0


def sweep(folder: Path, written_before_s: float, now_s: float) -> Swept:
    """Delete files that were written before ``written_before_s``, and unfinished ones.

    Safe alongside writers and other sweeps. Files that are not trajectories are left alone.

    Args:
        folder: of :func:`large_records_folder`; it need not exist.
        written_before_s, now_s: seconds since 1970.

    Raises:
        OSError: a file cannot be deleted; those before it are gone.
    """
    files = size_bytes = 0
    for path in folder.glob("??/*"):
        limit_s = {SUFFIX: written_before_s, UNFINISHED: now_s - UNFINISHED_S_MAX}.get(path.suffix, 0.0)
        try:
            found = path.stat()
            if found.st_mtime >= limit_s:
                continue
            path.unlink()
        except FileNotFoundError:
            continue
        files, size_bytes = files + 1, size_bytes + found.st_size
    return Swept(files, size_bytes)


def _write(path: Path, encoded: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=UNFINISHED)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(encoded)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
