"""The named queries and their parameters, read from the files beside this one."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from lightstream.schemas.errors import NotFoundError, QueryError

_OPTIONAL = re.compile(r"-- where \$(\w+) is given$")
_NAME = re.compile(r"\$(\w+)")
_PARAMETER = re.compile(r"\$(\w+)(?: = (.+?))?: (.+)")


@dataclass(frozen=True, slots=True)
class QueryParameter:
    """A parameter.

    Attributes:
        name: without ``$``.
        default: its value where none is given; ``None``: it does not narrow the answer.
        meaning: a phrase.
    """

    name: str
    default: Any
    meaning: str

    def value_of(self, given: Any) -> Any:
        """A given value; text becomes a number where the default is one.

        Raises:
            QueryError: it is no number.
        """
        if not isinstance(given, str) or not isinstance(self.default, (int, float)):
            return given
        try:
            return json.loads(given) + 0
        except (ValueError, TypeError) as error:
            raise QueryError(f"{self.name!r} must be a number ({self.meaning}), not {given!r:.100}.") from error


@dataclass(frozen=True, slots=True)
class NamedQuery:
    """One query.

    Attributes:
        name: that of its file.
        doc: a sentence.
        parameters: in the file's order.
        sql: the statement, with ``$name`` for parameters. A line with ``-- where $name is given`` narrows it by that
            parameter, and lets everything through without it.
    """

    name: str
    doc: str
    parameters: tuple[QueryParameter, ...]
    sql: str

    def values(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The values of all parameters, where some are given.

        Raises:
            QueryError: there is no such parameter, or it has no such value.
        """
        known = {parameter.name: parameter for parameter in self.parameters}
        for name in given:
            if name not in known:
                raise QueryError(f":{self.name} has no parameter {name!r}; it has {', '.join(known)}.")
        return {
            name: parameter.value_of(given[name]) if name in given else parameter.default
            for name, parameter in known.items()
        }

    def statement(self, given: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        """The statement to run for these values and its parameters' values, without lines that would let everything
        through.

        Raises:
            QueryError: as :meth:`values`.
        """
        values = self.values(given)
        lines = self.sql.split("\n")
        kept = [line for line in lines if (found := _OPTIONAL.search(line)) is None or values[found[1]] is not None]
        sql = "\n".join(kept)
        named = set(_NAME.findall(sql))
        return sql, {name: value for name, value in values.items() if name in named}


def named_query(name: str) -> NamedQuery:
    """Return the query of that name, with or without a colon before it.

    Raises:
        NotFoundError: there is none.
    """
    name = name.removeprefix(":")
    query = QUERIES.get(name)
    if query is None:
        near = get_close_matches(name, QUERIES)
        raise NotFoundError(
            f"there is no query :{name}{f' (there is :{near[0]})' if near else ''}.",
            next_step="`lightstream sql :` lists them.",
        )
    return query


def queries_as_markdown() -> str:
    """A table of the queries for the documentation."""
    rows = (f"| `:{query.name}` | {query.doc} | {_parameters(query)} |\n" for query in QUERIES.values())
    return f"| query | tells | parameters |\n|---|---|---|\n{''.join(rows)}"


def _parameters(query: NamedQuery) -> str:
    return "; ".join(
        f"`{one.name}`{'' if one.default is None else f' ({one.default})'}: {one.meaning.removesuffix('.')}"
        for one in query.parameters
    )


def _read(path: Path) -> NamedQuery:
    lines = path.read_text("utf-8").split("\n")
    length = next(i for i, line in enumerate(lines) if not line.startswith("-- "))
    head = [line.removeprefix("-- ") for line in lines[:length]]
    parameters = [found.groups() for line in head if (found := _PARAMETER.fullmatch(line))]
    return NamedQuery(
        path.stem,
        " ".join(line for line in head if not line.startswith("$")),
        tuple(QueryParameter(name, json.loads(default or "null"), meaning) for name, default, meaning in parameters),
        "\n".join(lines[length:]).strip(),
    )


QUERIES: Mapping[str, NamedQuery] = {path.stem: _read(path) for path in sorted(Path(__file__).parent.glob("*.sql"))}
"""By name."""
