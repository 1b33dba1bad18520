"""Rows on terminals of any width."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from lightstream.cli.rows import print_rows


def printed(width: int, columns: list[str], rows: list[list[Any]], **options: Any) -> str:
    file = io.StringIO()
    print_rows(Console(file=file, width=width, highlight=False), columns, rows, **options)
    return file.getvalue()


def test_a_table_where_it_fits() -> None:
    text = printed(40, ["name", "count"], [["one", 1], ["two", None]])
    assert re.search(r"│ one +│ +1 │\n│ two +│ +NULL │", text)


def test_long_texts_are_cut_and_numbers_are_not() -> None:
    text = printed(40, ["id", "text", "n"], [["r1", "x" * 500, 1234567890123]])
    (row,) = [line for line in text.splitlines() if "r1" in line]
    assert "xxx…" in row
    assert "1234567890123" in row
    assert cell_len(row) == 40


def test_a_row_that_does_not_fit_is_vertical_and_whole() -> None:
    columns = ["rollout_id", "status", "conclusion", "input_json"]
    text = printed(40, columns, [["r1", "failed", "x" * 50, {"task": "ä"}], ["r2", "failed", "", None]])
    assert text.splitlines()[:2] == ["── row 1 ──", "rollout_id  r1"]
    assert "── row 2 ──" in text
    assert "".join(text.split()).count("x" * 50) == 1
    assert 'input_json  {"task": "ä"}' in text
    assert "│" not in text


def test_vertical_where_asked_for() -> None:
    assert printed(80, ["a", "bc"], [[1, "two\nlines"]], vertical=True).splitlines() == [
        "── row 1 ──",
        "a   1",
        "bc  two",
        "    lines",
    ]


def test_wrapped_instead_of_cut() -> None:
    text = printed(30, ["name", "detail"], [["r1", "y" * 40]], cut=False)
    assert text.count("y") == 40
    assert "│" in text


def test_nothing_in_a_cell_reaches_the_terminal_as_a_command() -> None:
    evil = "\x1b[2J\x07\r[bold]x\ud800\ttab"
    for options in ({}, {"vertical": True}, {"cut": False}):
        text = printed(80, [evil], [[evil]], **options)
        assert not set(text) & set("\x1b\x07\r\t\ud800")
        assert r"\x1b[2J\x07\r[bold]x" in text


CELLS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.lists(st.text(max_size=3)))


@given(
    width=st.integers(40, 120),
    rows=st.integers(1, 6).flatmap(lambda n: st.lists(st.lists(CELLS, min_size=n, max_size=n), min_size=1, max_size=4)),
    vertical=st.booleans(),
    cut=st.booleans(),
)
def test_no_line_is_wider_than_the_terminal(width: int, rows: list[list[Any]], vertical: bool, cut: bool) -> None:
    text = printed(width, [f"column_{i}" for i in range(len(rows[0]))], rows, vertical=vertical, cut=cut)
    assert max(map(cell_len, text.split("\n"))) <= width


@pytest.mark.parametrize("columns", [1, 20])
def test_no_rows_are_a_head_alone(columns: int) -> None:
    names = [f"column_{i}" for i in range(columns)]
    text = printed(40, names, [])
    assert "row 1" not in text
    assert ("column_0" in text) == (columns == 1)
