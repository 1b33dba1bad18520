"""The settings as Markdown: ``python -m lightstream.schemas.settings_document > docs/settings.md``."""

from __future__ import annotations

import sys

from .setting_groups import SETTING_GROUPS, SettingGroup
from .setting_values import accepted, in_words, shown
from .settings import ENVIRONMENT_PREFIX, Settings

__all__ = ["settings_as_markdown"]

HEAD = """# Settings

Settings are environment variables, the same for every process; `lightstream up` hands them on to those that it starts.
In Python they are arguments too: `Settings.load(topic_prefix="mine.")`. `lightstream settings` shows what they are now.
A value that a setting cannot have is refused, and so is a variable that nearly has the name of a setting.

The name tells the unit: `_s` seconds, `_ms` milliseconds, `_bytes` bytes. Secrets are marked as such, and are shown
nowhere. Written by `python -m lightstream.schemas.settings_document`; do not edit.
"""


def settings_as_markdown() -> str:
    """Every setting in its group, with what it may be, its default, and its meaning."""
    return HEAD + "".join(map(_section, SETTING_GROUPS))


def _section(group: SettingGroup) -> str:
    rows = "".join(map(_row, group.names))
    return f"\n## {group.title}\n\n| variable | value | default | meaning |\n|---|---|---|---|\n{rows}"


def _row(name: str) -> str:
    field = Settings.model_fields[name]
    cells = (
        f"`{ENVIRONMENT_PREFIX}{name.upper()}`",
        accepted(name, field),
        _default(name, field.default),
        (field.description or "").replace("<", "&lt;"),
    )
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n"


def _default(name: str, value: object) -> str:
    if value is None or value == "":
        return "unset" if value is None else "empty"
    words = in_words(name, value)
    return f"`{shown(value)}` ({words})" if words else f"`{shown(value)}`"


if __name__ == "__main__":
    sys.stdout.write(settings_as_markdown())
