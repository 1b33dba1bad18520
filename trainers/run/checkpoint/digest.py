"""The digest in a checkpoint's name, by which a folder that was replaced under the same path is found out."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

from lightstream.schemas.errors import TrainingError

DIGEST_CHARACTERS = 12

BLOCKS, BLOCK_BYTES = 64, 16 * 1024
"""Of each file of weights so many blocks count, evenly spread, and its size: a step changes nearly all of them."""

_NAME = re.compile(rf"step-\d+-[0-9a-f]+-([0-9a-f]{{{DIGEST_CHARACTERS}}})")
"""Checkpoints of 0.2.0 have no digest in their names."""


def digest_of(folder: Path) -> str:
    """Twelve hexadecimal digits that follow from configuration and weights of a model, and of adapters within it.

    Raises:
        OSError: a file cannot be read.
    """
    digest = hashlib.blake2b()
    for path in _files(folder):
        size = path.stat().st_size
        digest.update(f"{path.relative_to(folder).as_posix()}\0{size}\0".encode())
        with path.open("rb") as file:
            if size <= BLOCKS * BLOCK_BYTES:
                digest.update(file.read())
                continue
            for block in range(BLOCKS):
                file.seek(block * (size - BLOCK_BYTES) // (BLOCKS - 1))
                digest.update(file.read(BLOCK_BYTES))
    return digest.hexdigest()[:DIGEST_CHARACTERS]


def check_digest(folder: Path) -> None:
    """Refuse a checkpoint, or an adapter within one, that differs from the written one; a name without a digest is not
    checked.

    Raises:
        TrainingError: it was replaced or damaged.
    """
    for each in (folder, folder.parent):
        named = _NAME.fullmatch(each.name)
        if named is None:
            continue
        try:
            found = digest_of(each)
        except OSError as error:
            raise TrainingError(f"the checkpoint {each} cannot be read: {error}.") from error
        if found != named[1]:
            raise TrainingError(
                f"the checkpoint {each} was replaced or damaged: its weights have the digest {found}, and the run "
                f"wrote {named[1]}.",
                next_step="Restore the folder as the run wrote it; other weights need a run of their own.",
            )


def _files(folder: Path) -> Iterator[Path]:
    adapters = [path for path in folder.iterdir() if (path / "adapter_config.json").is_file()]
    for place in (folder, *sorted(adapters)):
        for path in sorted(place.iterdir()):
            if path.is_file() and (
                path.name in ("config.json", "adapter_config.json") or path.suffix == ".safetensors"
            ):
                yield path
