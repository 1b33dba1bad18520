"""Rows of the view in pages, by their place in the log: the answer to a long question without holding it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias, TypedDict

from lightstream.schemas.errors import QueryError

PAGE_ROWS = 1000
"""LLM calls of 3,000 tokens make a page of about 40 MB of JSON; the server cuts off larger ones, which does no harm."""


class Answer(TypedDict):
    """An answer of the view's server: see ``ViewClient.query``."""

    columns: list[str]
    rows: list[list[Any]]
    truncated: bool


Ask: TypeAlias = Callable[[str], Answer]
"""Runs one SELECT on the view.

Raises:
    QueryError: it was refused, failed or took too long.
    ServiceUnavailableError: no view answers.
"""


def rows_of(
    ask: Ask, select: str, key: Sequence[str], *, where: str = "TRUE", page_rows: int = PAGE_ROWS
) -> Iterator[dict[str, Any]]:
    """The rows of ``<select> WHERE <where>`` in the order of ``key``, by column name.

    Each page begins after the key of the last row, so rows that are added meanwhile disturb nothing, and a page that
    the view cut off for its size is simply shorter.

    Args:
        select: ``SELECT … FROM …``; must give the columns of ``key``.
        key: columns of whole numbers that tell rows apart.

    Raises:
        QueryError: as ``ask``; also when a single row is over the view's limit.
    """
    order = ", ".join(key)
    behind = "TRUE"
    while True:
        answer = ask(f"{select} WHERE ({where}) AND ({behind}) ORDER BY {order} LIMIT {page_rows}")
        rows = [dict(zip(answer["columns"], row, strict=True)) for row in answer["rows"]]
        yield from rows
        if not rows and answer["truncated"]:
            raise QueryError(f"the row after {behind} is over the view's limit for one answer.")
        if not rows or (len(rows) < page_rows and not answer["truncated"]):
            return
        behind = _behind([(name, int(rows[-1][name])) for name in key])


def _behind(key: Sequence[tuple[str, int]]) -> str:
    """(a, b) > (1, 2), spelled out so that DuckDB skips the row groups before it."""
    clauses: list[str] = []
    same = ""
    for name, value in key:
        clauses.append(f"({same}{name} > {value})")
        same += f"{name} = {value} AND "
    return f"{key[0][0]} >= {key[0][1]} AND ({' OR '.join(clauses)})"
