"""``lightstream settings``: the present value of each setting, and its origin."""

from __future__ import annotations

import json
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from lightstream.runtime.settings import ENVIRONMENT_PREFIX, SETTING_GROUPS, Settings
from lightstream.runtime.settings_document import in_words, is_secret, shown

from .formats import Format

console = Console(highlight=False)


def run_settings(settings: Settings, output: Format) -> None:
    """Print every setting, secrets hidden."""
    if output is Format.JSON:
        print(json.dumps({"settings": [_as_json(settings, name) for name in Settings.model_fields]}, indent=2))
    else:
        console.print(_table(settings))


def _table(settings: Settings) -> Table:
    table = Table("setting", "value", "from")
    for column in table.columns:
        column.overflow = "fold"
    for title, names in SETTING_GROUPS.items():
        table.add_section()
        table.add_row(f"[bold]{title}[/]", "", "")
        for name in names:
            value = getattr(settings, name)
            words = in_words(name, value)
            text = f"{shown(value)} ({words})" if words else shown(value)
            origin = _origin(settings, name)
            table.add_row(_variable(name), escape(text), origin, style=None if origin == "environment" else "dim")
    return table


def _as_json(settings: Settings, name: str) -> dict[str, Any]:
    field, value = Settings.model_fields[name], getattr(settings, name)
    return {
        "name": _variable(name),
        "value": value if isinstance(value, int | float | None) or value == "" else shown(value),
        "from": _origin(settings, name),
        "secret": is_secret(field),
        "meaning": field.description,
    }


def _origin(settings: Settings, name: str) -> str:
    return "environment" if name in settings.model_fields_set else "default"


def _variable(name: str) -> str:
    return ENVIRONMENT_PREFIX + name.upper()
