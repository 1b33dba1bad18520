"""Environments by name, as the command line takes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from lightstream.schemas.errors import SettingsError

from .environment import Environment


def _verifiers(name: str, options: Mapping[str, Any]) -> Environment:
    from .adapters.verifiers import verifiers_environment

    return verifiers_environment(name, **options)


def _reasoning_gym(name: str, options: Mapping[str, Any]) -> Environment:
    from .adapters.reasoning_gym import reasoning_gym_environment

    return reasoning_gym_environment(name, **options)


def _gymnasium(name: str, options: Mapping[str, Any]) -> Environment:
    from .adapters.gymnasium import gymnasium_environment

    return gymnasium_environment(name, **options)


def _folder(name: str, options: Mapping[str, Any]) -> Environment:
    from .adapters.folder import folder_environment

    return folder_environment(name, **options)


def _openenv(name: str, options: Mapping[str, Any]) -> Environment:
    from .adapters.openenv import openenv_environment

    return openenv_environment(name, **options)


KINDS: Mapping[str, Callable[[str, Mapping[str, Any]], Environment]] = {
    "folder": _folder,
    "gymnasium": _gymnasium,
    "openenv": _openenv,
    "reasoning-gym": _reasoning_gym,
    "verifiers": _verifiers,
}


def named_environment(name: str, options: Mapping[str, Any]) -> Environment:
    """The environment ``KIND:NAME``, made with these options.

    Raises:
        SettingsError: there is no such kind or option; or see the adapter.
    """
    kind, _, rest = name.partition(":")
    if kind not in KINDS or not rest:
        raise SettingsError(
            f"there is no environment {name!r}.",
            next_step=f"Name one as KIND:NAME, with {', '.join(KINDS)}; or yours, as FILE.py:environment.",
        )
    try:
        return KINDS[kind](rest, options)
    except TypeError as error:  # an option that the adapter does not have
        raise SettingsError(f"{name!r} does not take {dict(options)}: {error}.") from error
