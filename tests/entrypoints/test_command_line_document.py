"""The page of our commands is what the commands are."""

from __future__ import annotations

from pathlib import Path

import typer

from lightstream.cli.app import PROGRAM, app
from lightstream.cli.document import commands, commands_as_markdown

DOCUMENT = Path(__file__).parents[2] / "docs" / "command-line.md"


def test_the_page_is_current() -> None:
    assert DOCUMENT.read_text("utf-8") == commands_as_markdown(), "run make docs"


def test_every_command_and_option_is_on_the_page() -> None:
    found = dict(commands(typer.main.get_command(app), PROGRAM))
    assert {"lightstream up", "lightstream runs delete", "lightstream train"} <= found.keys()
    page = commands_as_markdown()
    assert [name for name in found if f" {name}\n" not in page] == []
    sections = page.split("\n## ")
    (sql,) = (section for section in sections if section.startswith("lightstream sql\n"))
    assert "| `--timeout` | `30.0` | Seconds that the statement may run. |" in sql
    assert "| `--file`, `-f` |  | File of statements, each with a ; at its end. |" in sql
