"""Environments by name, for the commands that train in them or run them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lightstream.schemas.errors import SettingsError

from .agents import load_named, name_of_file
from .load import needs
from .option_text import option

if TYPE_CHECKING:
    from lightstream.trainers.environments import Environment


def only_environment(name: str, options: Sequence[str], **others: Any) -> Environment:
    """The environment of ``--env``.

    Args:
        options: ``name=value`` each.
        others: options that say the same in another way; all must be ``None``.

    Raises:
        SettingsError: there is no such environment or option, or one of the others is given too.
    """
    given = [other for other, value in others.items() if value is not None]
    if given:
        raise SettingsError(
            f"there is an environment, {name}, and {' and '.join(given)}.",
            next_step="An environment has its own agent and tasks: leave out one or the other.",
        )
    with needs("view"):
        from lightstream.trainers.environments import Environment
        from lightstream.trainers.environments.named import KINDS, named_environment
    if name.partition(":")[0] in KINDS:
        return named_environment(name, dict(option(text) for text in options))
    if options:
        raise SettingsError(f"{name!r} is an environment of its own, and takes no options.")
    found = load_named(name)
    if not isinstance(found, Environment):
        raise SettingsError(
            f"{name!r} is a {type(found).__name__}, and no environment.",
            next_step="Make one: lightstream.trainers.environments.Environment(task_set, agent, verifier).",
        )
    return found


def no_options_without_environment(options: Sequence[str] | None) -> None:
    """Refuse ``--env-option`` without ``--env``.

    Raises:
        SettingsError: there is one.
    """
    if options:
        raise SettingsError(f"--env-option {options[0]} needs --env.", next_step="Name the environment with --env.")


def name_of_environment(name: str) -> str:
    """Return the default name of a run in this environment."""
    kind, _, rest = name.partition(":")
    text = name_of_file(name) if kind.endswith(".py") else f"{kind}-{rest.rstrip('/').rpartition('/')[2]}"
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("._-")[:100]
