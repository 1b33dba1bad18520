"""The user who runs a command."""

from __future__ import annotations

import getpass


def by_command_line() -> str:
    """Name the author of a change or a score: ``command line, ada``."""
    return f"command line, {_user_name()}"


def _user_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "a user without a name"
