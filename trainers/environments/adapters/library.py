"""Imports of the libraries that adapters stand on."""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any

from lightstream.schemas.errors import SettingsError

from ..environment import installed

LIBRARIES = {
    "gymnasium": ("gymnasium", (1, 0), (2,)),
    "mcp": ("mcp", (2,), (3,)),
    "openenv": ("openenv", (0, 4), (1,)),
    "reasoning-gym": ("reasoning_gym", (0, 1, 25), (0, 2)),
    "verifiers": ("verifiers", (0, 4), (0, 5)),
}
"""Distribution -> its package, the first version that the adapter knows, and the first that it does not."""


def library(distribution: str, module: str | None = None) -> Any:
    """A module of a library, of a version that its adapter knows.

    Raises:
        SettingsError: it is not installed, or another version is. Says what to install.
    """
    package, first, beyond = LIBRARIES[distribution]
    found = installed(distribution)
    wanted = f"{distribution}>={_text(first)},<{_text(beyond)}"
    if found == "none":
        raise SettingsError(f"{distribution} is not installed.", next_step=f"Install it: pip install '{wanted}'.")
    if not first <= _numbers(found) < beyond:
        raise SettingsError(
            f"{distribution} {found} is installed, and its adapter is made for {wanted}.",
            next_step=f"pip install '{wanted}'.",
        )
    return import_module(module or package)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", text.split("+")[0])[:3])


def _text(numbers: tuple[int, ...]) -> str:
    return ".".join(map(str, numbers))
