"""Environment variables of Agent Lightning 0.3 for its strategies. Ours are ``lightstream.runtime.settings``."""

from __future__ import annotations

import os
from enum import Enum
from typing import overload

__all__ = ["LightningEnvVar", "resolve_bool_env_var", "resolve_int_env_var", "resolve_str_env_var"]

_WORDS = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}


class LightningEnvVar(Enum):
    """The variables, by name."""

    AGL_EMITTER_DEBUG = "AGL_EMITTER_DEBUG"
    """Not used here: what is emitted is in the log."""
    AGL_MANAGED_STORE = "AGL_MANAGED_STORE"
    """Says whether strategies manage the store (a server, clients, a check); otherwise it is used as it is."""
    AGL_CURRENT_ROLE = "AGL_CURRENT_ROLE"
    """The part of the strategy ``cs`` that runs in this process: ``algorithm``, ``runner`` or ``both``."""
    AGL_SERVER_HOST = "AGL_SERVER_HOST"
    """The host of the store's server in the strategy ``cs``."""
    AGL_SERVER_PORT = "AGL_SERVER_PORT"
    """The port of the store's server in the strategy ``cs``."""


@overload
def resolve_bool_env_var(env_var: LightningEnvVar, override: bool | None = None, *, fallback: bool) -> bool: ...
@overload
def resolve_bool_env_var(env_var: LightningEnvVar, override: bool | None, fallback: bool) -> bool: ...
@overload
def resolve_bool_env_var(
    env_var: LightningEnvVar, override: bool | None = None, fallback: bool | None = None
) -> bool | None: ...


def resolve_bool_env_var(
    env_var: LightningEnvVar, override: bool | None = None, fallback: bool | None = None
) -> bool | None:
    """``override``, else the variable, else ``fallback``.

    Raises:
        ValueError: the variable is neither yes nor no.
    """
    text = _text(env_var) if override is None else None
    if text is None:
        return fallback if override is None else override
    found = _WORDS.get(text.strip().lower())
    if found is None:
        raise ValueError(f"{env_var.value} is {text!r}; it must be one of {', '.join(_WORDS)}")
    return found


@overload
def resolve_int_env_var(env_var: LightningEnvVar, override: int | None = None, *, fallback: int) -> int: ...
@overload
def resolve_int_env_var(env_var: LightningEnvVar, override: int | None, fallback: int) -> int: ...
@overload
def resolve_int_env_var(
    env_var: LightningEnvVar, override: int | None = None, fallback: int | None = None
) -> int | None: ...


def resolve_int_env_var(
    env_var: LightningEnvVar, override: int | None = None, fallback: int | None = None
) -> int | None:
    """``override``, else the variable, else ``fallback``.

    Raises:
        ValueError: the variable is not a whole number.
    """
    text = _text(env_var) if override is None else None
    if text is None:
        return fallback if override is None else override
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{env_var.value} is {text!r}; it must be a whole number") from None


@overload
def resolve_str_env_var(env_var: LightningEnvVar, override: str | None = None, *, fallback: str) -> str: ...
@overload
def resolve_str_env_var(env_var: LightningEnvVar, override: str | None, fallback: str) -> str: ...
@overload
def resolve_str_env_var(
    env_var: LightningEnvVar, override: str | None = None, fallback: str | None = None
) -> str | None: ...


def resolve_str_env_var(
    env_var: LightningEnvVar, override: str | None = None, fallback: str | None = None
) -> str | None:
    """``override``, else the variable, else ``fallback``."""
    if override is not None:
        return override
    text = _text(env_var)
    return fallback if text is None else text


def _text(env_var: LightningEnvVar) -> str | None:
    return os.environ.get(env_var.value)
