"""Stores trajectories that are too large for a Kafka record in a file; the record has the file's address.

The file is the encoded trajectory, under a name from its SHA-256: the same trajectory is the same file, and nothing is
ever written over. A topic's files have a folder of their own, and are deleted by age: each is as young as the last
record that was about to name it.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import urllib.parse
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from lightstream.schemas.codec import Codec
from lightstream.schemas.errors import ArtefactError, DecodeError
from lightstream.schemas.records import Trajectory
from lightstream.schemas.topics import TRAJECTORIES

from .artefacts import resolve
from .files import private_folder
from .settings import Settings

SUFFIX = ".avro"
UNFINISHED = ".part"
UNFINISHED_S_MAX = 3600.0
"""Writing a file takes seconds; what is still unfinished after this long was left by a process that died."""

PAYLOAD_BYTES_MAX = 4 * 1024 * 1024 * 1024

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


def whole_trajectory(trajectory: Trajectory, codec: Codec, settings: Settings) -> Trajectory:
    """The whole trajectory of a record; the record itself where nothing was left out.

    Whoever may write to Kafka chooses the address. So it is that of a regular file below the folder of large records,
    links followed, of the size that the record names; nothing is asked over a network.

    Args:
        settings: name that folder; unset means the one in the data folder.

    Raises:
        ArtefactError: the address is another, or the file is not there, or not what was written. Nothing was read of
            another address.
    """
    url = trajectory.payload_url
    if not url:
        return trajectory
    path = _allowed(url, settings)
    try:
        size_bytes = path.stat().st_size
    except OSError as error:
        raise ArtefactError(url, "does not exist.", next_step="Is the path the same on this machine?") from error
    if size_bytes != trajectory.payload_size_bytes or size_bytes > PAYLOAD_BYTES_MAX:
        raise ArtefactError(url, f"has {size_bytes:,} bytes; the record names {trajectory.payload_size_bytes:,}.")
    resolve(str(path), trajectory.payload_sha256, size_bytes)
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


def _allowed(url: str, settings: Settings) -> Path:
    """The file that an address names, below the folder of large records."""
    folder = settings.large_records_dir or settings.data_dir / "large-records"
    problem = f"is not below {folder}, so nothing is read there."
    step = "LIGHTSTREAM_LARGE_RECORDS_DIR names the folder of large trajectories, the same wherever they are written."
    try:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
            raise ArtefactError(url, problem, next_step=step)
        path = Path(urllib.request.url2pathname(parts.path)).resolve()
        if not path.is_relative_to(folder.resolve()) or (path.exists() and not path.is_file()):
            raise ArtefactError(url, problem, next_step=step)
    except (OSError, ValueError) as error:
        raise ArtefactError(url, problem, next_step=step) from error
    return path


def file_of(trajectory: Trajectory, settings: Settings) -> Path | None:
    """The file that a record names, there or not; ``None`` where it names none, or one in another place."""
    try:
        return _allowed(trajectory.payload_url, settings) if trajectory.payload_url else None
    except ArtefactError:
        return None


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
    private_folder(path.parent)
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
