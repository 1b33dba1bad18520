"""Agent Lightning 0.3's arguments that have no role here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lightstream.schemas.errors import SettingsError

__all__ = ["refuse"]


def refuse(of: str, arguments: Mapping[str, Any], instead: Mapping[str, str]) -> None:
    """Refuse each given argument, and say how to replace it.

    Args:
        of: whose arguments these are.
        arguments: name -> value; those that are ``None`` were not given.
        instead: name -> what to do instead.

    Raises:
        TypeError: there is no such argument in Agent Lightning 0.3 either.
        SettingsError: one was given.
    """
    if unknown := arguments.keys() - instead.keys():
        raise TypeError(f"{of} takes no {', '.join(sorted(unknown))}")
    if given := [name for name, value in arguments.items() if value is not None]:
        steps = dict.fromkeys(instead[name] for name in given)  # each once
        raise SettingsError(f"{of} takes no {', '.join(given)} here.", next_step=" ".join(steps))
