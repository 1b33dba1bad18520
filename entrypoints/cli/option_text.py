"""Options on the command line that are of others: ``name=value``."""

from __future__ import annotations

import json
from typing import Any

from lightstream.schemas.errors import SettingsError


def option(text: str) -> tuple[str, Any]:
    """Name and value of ``name=value``; the value is JSON, or text where it is none.

    Raises:
        SettingsError: there is no value.
    """
    name, equals, value = text.partition("=")
    if not equals:
        raise SettingsError(f"option {text!r} has no value.", next_step="Write it as name=value.")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value
