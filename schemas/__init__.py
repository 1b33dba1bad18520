"""Schemas that every part shares: records, topics, codec, types, errors and interfaces."""

from __future__ import annotations

__version__: str
"""The version of the distribution ``lightstream-rl``. ``lightstream`` itself is a namespace, and has no attributes."""


def __getattr__(name: str) -> str:
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .distribution import installed_version

    return installed_version()
