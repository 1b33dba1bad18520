"""The user's agent by name, for the commands that run it: ``FILE.py:agent`` or ``module:agent``."""

from __future__ import annotations

import hashlib
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from lightstream.schemas.errors import SettingsError


def load_agent(name: str) -> Any:
    """The agent, as Runners take it. Its module is imported, and found by its name in Runner processes too.

    Raises:
        SettingsError: there is no such file, module or agent, or importing it failed.
    """
    from lightstream.producers import LitAgent

    agent = load_named(name)
    if not isinstance(agent, LitAgent):
        raise SettingsError(
            f"{name!r} is a {type(agent).__name__}, and no agent.",
            next_step="Put @lightstream.producers.rollout above the function, or name a LitAgent.",
        )
    return agent


def code_of(name: str) -> str:
    """A name as of :func:`load_agent`, with the digest of its file where it is one: changed code has another."""
    path = Path(name.rpartition(":")[0]).expanduser()
    if path.suffix != ".py" or not path.is_file():
        return name
    return f"{path.name}:{name.rpartition(':')[2]} {hashlib.sha256(path.read_bytes()).hexdigest()[:12]}"


def load_named(name: str) -> Any:
    """Whatever has this name in a file or module, whose folder is on Python's path from then on.

    Raises:
        SettingsError: there is no such file, module or name, or importing it failed.
    """
    where, _, attribute = name.rpartition(":")
    if not where or not attribute:
        raise SettingsError(f"{name!r} names nothing to load.", next_step="Name it as FILE.py:name or module:name.")
    is_file = where.endswith(".py")
    path = Path(where).expanduser().resolve()
    if is_file and not path.is_file():
        raise SettingsError(f"there is no file {path}.", next_step="Name the file with the agent: FILE.py:agent.")
    module_name = path.stem if is_file else where
    sys.path.insert(0, str(path.parent if is_file else Path.cwd()))
    try:
        module = import_module(module_name)
    except Exception as error:  # the user's code may raise anything while it is imported
        raise SettingsError(
            f"{where} cannot be imported: {type(error).__name__}: {error}.",
            next_step="Run it by itself first: `python " + (where if is_file else f"-m {where}") + "`.",
        ) from error
    if is_file and Path(module.__file__ or "").resolve() != path:
        raise SettingsError(
            f"{path.name} has the name of another module, {module.__file__}.", next_step="Give the file another name."
        )
    try:
        return getattr(module, attribute)
    except AttributeError as error:
        raise SettingsError(f"{where} has no {attribute!r}.") from error


def name_of_file(name: str) -> str:
    """Return the default name of a run of this agent, that of its file."""
    where = name.rpartition(":")[0]
    return Path(where).stem if where.endswith(".py") else where.rpartition(".")[2]
