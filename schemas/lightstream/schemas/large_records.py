"""Trajectories too large for a Kafka record: the whole lies in a file, and the record has its address.

The file is the encoded trajectory, under a name from its SHA-256: the same trajectory is the same file, and nothing is
ever written over.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

from .artefacts import resolve
from .codec import Codec
from .errors import ArtefactError, DecodeError
from .records import Trajectory

__all__ = ["put_aside", "whole_trajectory"]

_IN_THE_FILE_ONLY = {"input_json": "null", "rewards": [], "triplets": [], "drops": [], "notes": []}


def put_aside(trajectory: Trajectory, codec: Codec, folder: Path) -> Trajectory:
    """Write the whole to ``folder``, durably, and return what is to be published in its place.

    Raises:
        OSError: it cannot be written; nothing is left behind.
    """
    encoded = codec.encode(trajectory)
    digest = hashlib.sha256(encoded).hexdigest()
    path = folder.resolve() / digest[:2] / f"{digest}.avro"
    if not (path.is_file() and path.stat().st_size == len(encoded)):
        _write(path, encoded)
    address = {"payload_url": path.as_uri(), "payload_sha256": digest, "payload_size_bytes": len(encoded)}
    return trajectory.model_copy(update=_IN_THE_FILE_ONLY | address)


def whole_trajectory(trajectory: Trajectory, codec: Codec) -> Trajectory:
    """The trajectory with all that its record left out; itself where that is nothing.

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
        raise ArtefactError(url, f"is no trajectory: {error}.") from error
    except OSError as error:
        raise ArtefactError(url, f"cannot be read: {error}.") from error
    kept = (trajectory.rollout_id, trajectory.attempt_id, trajectory.revision)
    if not isinstance(whole, Trajectory) or (whole.rollout_id, whole.attempt_id, whole.revision) != kept:
        raise ArtefactError(url, f"is not the trajectory {kept} that the record names.")
    address = ("payload_url", "payload_sha256", "payload_size_bytes")
    return whole.model_copy(update={name: getattr(trajectory, name) for name in address})


def _write(path: Path, encoded: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(encoded)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
