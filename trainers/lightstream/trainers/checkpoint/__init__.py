"""Checkpoint folders: written whole or not at all, under names that are used once."""

from .folder import CheckpointFolder, link_or_copy

__all__ = ["CheckpointFolder", "link_or_copy"]
