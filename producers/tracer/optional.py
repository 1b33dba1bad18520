"""Libraries that a tracer is based on and that may not be installed."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from lightstream.schemas.distribution import install_hint
from lightstream.schemas.errors import SettingsError


def import_optional(module: str, *, package: str, needed_by: str) -> Any:
    """The module.

    Raises:
        SettingsError: its package is not installed; says which one.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != module.partition(".")[0]:
            raise
        raise SettingsError(
            f"{needed_by} needs the package {package!r}, which is not installed.",
            next_step=f"Install it with `pip install {package}`, or {install_hint(package)}.",
        ) from error
