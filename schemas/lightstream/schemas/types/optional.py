"""Fields that Agent Lightning's models lack: they stay out of the way until somebody sets them."""

from __future__ import annotations

from typing import Any

__all__ = ["absent"]


def absent(value: Any) -> bool:
    """Whether a dump leaves the field out."""
    return value is None
