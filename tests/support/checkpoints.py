"""Checkpoints that records name."""

from __future__ import annotations

from pathlib import Path


def checkpoint_in(data_dir: Path, address: str | None) -> Path:
    """The folder of a checkpoint: its address is relative to the data folder."""
    assert address, "the record names a checkpoint"
    assert not Path(address).is_absolute()
    return data_dir / address
