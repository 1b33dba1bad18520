"""Prints rows for people: a table where a row fits the terminal, else each column on a line of its own."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

from rich.cells import cell_len, chop_cells
from rich.console import Console
from rich.table import Table
from rich.text import Text

CELL_WIDTH_MIN = 12
"""So much of a text is shown at least; where that does not fit, rows are vertical. Numbers are never cut."""

VALUE_WIDTH_MIN = 20
"""Vertically, a value with less room beside its column's name begins below it."""

INDENT = "    "

WIDTH_WITHOUT_TERMINAL = 1_000_000
"""Nothing is cut for a file or a pipe."""

Row = Sequence[Any]


def console_for_rows() -> Console:
    """Standard output: as wide as its terminal, or as ``COLUMNS`` says; else as wide as the printed rows."""
    console = Console(highlight=False)
    if console.is_terminal or os.environ.get("COLUMNS", "").isdecimal():
        return console
    return Console(highlight=False, width=WIDTH_WITHOUT_TERMINAL)


def print_rows(
    console: Console,
    columns: Sequence[str],
    rows: Sequence[Row],
    *,
    title: str | None = None,
    vertical: bool = False,
    cut: bool = True,
) -> None:
    """Print rows, no line wider than the console.

    Args:
        vertical: each column on a line of its own, its value whole, also where a table would fit.
        cut: cells of a table that are too long end in an ellipsis; else they are wrapped.
    """
    columns = [_visible(name, newlines=False) for name in columns]
    texts = [[_visible(as_text(value), newlines=not cut) for value in row] for row in rows]
    numeric = [bool(rows) and all(_is_number(row[i]) for row in rows) for i in range(len(columns))]
    widths = None if vertical else _widths(console.width, columns, texts, numeric)
    if title is not None:
        console.print(Text(title, style="italic"))
    if widths is None:
        _print_vertically(console, columns, [[_visible(as_text(value)) for value in row] for row in rows])
        return
    table = Table()
    for name, width, right in zip(columns, widths, numeric, strict=True):
        table.add_column(
            Text(name),
            width=width,
            no_wrap=cut,
            overflow="ellipsis" if cut else "fold",
            justify="right" if right else "left",
        )
    for row in texts:
        table.add_row(*(Text(text[: console.width] if cut else text) for text in row))
    console.print(table)


def as_text(value: Any) -> str:
    """A value as people read it: JSON for lists and objects, six digits of a number with a fraction."""
    if value is None:
        return "NULL"
    if isinstance(value, float):
        return f"{value:.6g}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _visible(text: str, *, newlines: bool = True) -> str:
    """Without characters that would move the cursor or change the terminal: these are told by their escapes."""
    if text.isprintable():
        return text
    kept = "\n" if newlines else ""
    return "".join(c if c.isprintable() or c in kept else c.encode("unicode_escape").decode() for c in text)


def _widths(
    room: int, columns: Sequence[str], rows: Sequence[Sequence[str]], numeric: Sequence[bool]
) -> list[int] | None:
    """Compute the width of each column, borders aside; ``None`` where no row fits."""
    room -= 3 * len(columns) + 1  # a space on both sides of each, and the lines
    widest = [max((_width(row[i]) for row in rows), default=0) for i in range(len(columns))]
    natural = [max(cell_len(name), width) for name, width in zip(columns, widest, strict=True)]
    least = [
        max(min(full, CELL_WIDTH_MIN), width if is_number else 0)
        for full, width, is_number in zip(natural, widest, numeric, strict=True)
    ]
    if sum(least) > room:
        return None
    limit, widths = min(max(natural, default=0), room), natural
    while sum(widths) > room:
        widths = [min(full, max(limit, needed)) for full, needed in zip(natural, least, strict=True)]
        limit -= 1
    return widths


def _width(text: str) -> int:
    return max(map(cell_len, text.split("\n")))


def _print_vertically(console: Console, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    names_width = max(map(cell_len, columns), default=0) + 2
    below = console.width - names_width < VALUE_WIDTH_MIN
    indent = INDENT if below else " " * names_width
    for number, row in enumerate(rows, 1):
        _print_line(console, f"── row {number} ──")
        for name, value in zip(columns, row, strict=True):
            lines = [
                part for line in value.split("\n") for part in chop_cells(line, console.width - len(indent)) or [""]
            ]
            if below:
                _print_line(console, name)
            else:
                _print_line(console, name + " " * (names_width - cell_len(name)) + lines.pop(0))
            for line in lines:
                _print_line(console, indent + line)


def _print_line(console: Console, line: str) -> None:
    """One line as it is."""
    console.print(Text(line), soft_wrap=True)
