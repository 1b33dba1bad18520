"""Where downloads are kept, shared by all data folders of this user."""

from __future__ import annotations

import os
from pathlib import Path

from .settings import Settings

__all__ = ["cache_folder"]


def cache_folder(settings: Settings) -> Path:
    """The folder that the settings name, else ours in the user's cache folder. It may not exist yet."""
    if settings.cache_dir is not None:
        return settings.cache_dir
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lightstream"
