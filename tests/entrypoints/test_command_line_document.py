"""The pages of our commands are what the commands are."""

from __future__ import annotations

from pathlib import Path

import typer

from lightstream.cli.app import PROGRAM, app
from lightstream.cli.document import commands, commands_as_markdown

FOLDER = Path(__file__).parents[2] / "docs" / "command-line"


def test_the_pages_are_current() -> None:
    assert {path.name: path.read_text("utf-8") for path in FOLDER.glob("*.md")} == commands_as_markdown(), "make docs"


def test_every_command_and_option_is_on_a_page() -> None:
    found = dict(commands(typer.main.get_command(app), PROGRAM))
    assert {"lightstream up", "lightstream runs delete", "lightstream train"} <= found.keys()
    pages = commands_as_markdown()
    index = pages.pop("README.md")
    assert [name for name in found if f"[`{name}`]" not in index] == []
    whole = "".join(pages.values())
    assert [name for name in found if f"# {name}\n" not in whole] == []
    assert "| `--timeout` | `30.0` | Seconds that the statement may run. |" in pages["sql.md"]
    assert "| `--file`, `-f` |  | File of statements, each with a ; at its end. |" in pages["sql.md"]
