"""Checkpoint folders: written whole or not at all, under names that are used once; and their names in records."""

from .address import address_of, checkpoint_folder, existing_folder, folder_of, run_checkpoints
from .digest import check_digest
from .folder import CheckpointFolder, link_or_copy

__all__ = [
    "CheckpointFolder",
    "address_of",
    "check_digest",
    "checkpoint_folder",
    "existing_folder",
    "folder_of",
    "link_or_copy",
    "run_checkpoints",
]
