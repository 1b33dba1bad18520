"""The version of Lightstream that is installed here: what it writes says so, and who cannot read it installs that."""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version

__all__ = ["installed_version", "is_under_development"]

_NAMES = ("lightstream-rl", "lightstream")


@cache
def installed_version() -> str:
    """The version of the installed package, such as ``0.2.0``; ``unknown`` where none is installed."""
    for name in _NAMES:
        with suppress(PackageNotFoundError):
            return version(name)
    return "unknown"


def is_under_development(version: str) -> bool:
    """Whether that version is no release yet, such as ``0.3.0.dev0``: its new schemas may still change."""
    return ".dev" in version
