"""``lightstream sql`` with statements from a file or standard input: all of them, one after another."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .formats import RowFormat
from .sql import Question, run_queries_list, run_sql, values_given
from .view_query import ViewSource

_PIECE = re.compile(
    r"""(?P<end>;)|'(?:[^']|'')*'|"(?:[^"]|"")*"|\$\$.*?\$\$|--[^\n]*|/\*.*?\*/|[^;'"$/-]+|.""", re.DOTALL
)
_COMMENT = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)
_NAMED = re.compile(r"\s*(:[^\n]*)")


def statements_of(text: str) -> Iterator[str]:
    """The statements of a script without their semicolons: ``SELECT …;`` over any lines, ``:NAME …`` on a line alone.

    Semicolons in texts, names and comments end nothing.
    """
    statement, place = "", 0
    while piece := (_NAMED.match(text, place) if _is_empty(statement) else None) or _PIECE.match(text, place):
        place = piece.end()
        if piece.re is _NAMED:
            yield piece[1].strip().rstrip(";")
            statement = ""
        elif piece["end"] is None:
            statement += piece[0]
        elif not _is_empty(statement):
            yield statement.strip()
            statement = ""
    if not _is_empty(statement):
        yield statement.strip()


def _is_empty(statement: str) -> bool:
    return not _COMMENT.sub("", statement).strip()


def run_script(
    source: ViewSource,
    text: str,
    values: dict[str, str],
    output: RowFormat,
    *,
    vertical: bool = False,
    every_row: bool = False,
) -> None:
    """Run each statement and print its answer; ends with the first that fails.

    Args:
        values: of the ``$name`` of every statement.

    Raises:
        QueryError, NotFoundError: of a statement; the answers of those before it are printed.
        ServiceUnavailableError: no view runs.
    """
    for statement in statements_of(text):
        if statement == ":":
            run_queries_list()
            continue
        given = dict(values)
        if statement.startswith(":"):
            statement, *arguments = statement.split()
            given |= values_given(arguments)
        run_sql(source, Question.of(statement, given), output, vertical=vertical, every_row=every_row)
