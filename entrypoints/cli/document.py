"""Our commands as Markdown, a page each: ``python -m lightstream.cli.document docs/command-line``."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

import typer

from .app import PROGRAM, app

GENERATED = "<!-- Written by `make docs`. -->\n\n"

INDEX_HEAD = """# Command line

`lightstream --help` and `lightstream COMMAND --help` show the same. Settings are environment variables:
[settings](../settings.md).

| command | does |
|---|---|
"""


def commands_as_markdown() -> dict[str, str]:
    """Return a page for every command with its help, arguments and options, by its file's name, and an index."""
    pages: dict[str, str] = {}
    rows = ""
    for name, command in commands(typer.main.get_command(app), PROGRAM):
        page = f"{name.split(' ')[1]}.md"
        pages[page] = pages.get(page, "") + _section(name, command)
        first = _escaped(command.help or "").partition("\n")[0].rpartition(".")[0]
        rows += f"| [`{name}`]({page}) | {first} |\n"
    return {name: GENERATED + text for name, text in {"README.md": INDEX_HEAD + rows, **pages}.items()}


def write_pages(folder: Path) -> None:
    """Write every page; a page of a command that is gone is deleted."""
    pages = commands_as_markdown()
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.md"):
        if old.name not in pages:
            old.unlink()
    for name, text in pages.items():
        (folder / name).write_text(text, "utf-8")


def commands(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yield the commands below one, with their whole names; hidden ones are left out."""
    subs: Mapping[str, Any] = getattr(command, "commands", {})
    for sub_name, sub in subs.items():
        if not sub.hidden:
            yield f"{name} {sub_name}", sub
            yield from commands(sub, f"{name} {sub_name}")


def _section(name: str, command: Any) -> str:
    depth = name.count(" ")
    text = _escaped(command.help or "")
    rows = "".join(_row(parameter) for parameter in command.params if not parameter.hidden)
    table = f"\n| argument or option | default | |\n|---|---|---|\n{rows}" if rows else ""
    space = chr(10) if depth > 1 else ""
    return f"{space}{'#' * depth} {name}\n\n{text}\n{table}"


def _row(parameter: Any) -> str:
    is_argument = parameter.param_type_name == "argument"
    names = [parameter.name.upper()] if is_argument else [*parameter.opts, *parameter.secondary_opts]
    shown = ", ".join(f"`{name}`" for name in names)
    return f"| {shown} | {_default(parameter)} | {_escaped(parameter.help or '')} |\n"


def _default(parameter: Any) -> str:
    value: object = parameter.default
    if parameter.required:
        return "(required)"
    if callable(value) or value in (None, "", False, [], (), sys.executable):  # the last is another on each machine
        return ""
    if value is True:
        return f"`{parameter.opts[0]}`"
    return f"`{value.value if isinstance(value, Enum) else value}`"


def _escaped(text: str) -> str:
    """Help in Markdown: outside of code, angle brackets and stars are themselves."""
    parts = re.split(r"(`[^`]*`)", text.replace("|", chr(92) + "|").replace("\b", ""))
    return "".join(part if part.startswith("`") else re.sub(r"([<*])", r"\\\1", part) for part in parts)


if __name__ == "__main__":
    write_pages(Path(sys.argv[1]))
