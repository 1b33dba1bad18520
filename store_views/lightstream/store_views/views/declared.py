"""The SQL views, in an order in which each finds those it reads."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lightstream.schemas.names_described import names_described

__all__ = ["VIEWS", "SqlView"]

_FOLDER = Path(__file__).parent

_NAMES = (
    "rollouts",
    "attempts",
    "trajectories",
    "triplets",
    "rewards",
    "assembler_drops",
    "spans",
    "call_spans",
    "unassembled",
    "llm_calls",
    "dropped",
    "shared_spans",
    "resources",
    "training_steps",
    "trained",
    "workers",
    "dead_letters",
    "call_accounting",
    "training_accounting",
    "why_not_trained",
    "funnel",
)


@dataclass(frozen=True, slots=True)
class SqlView:
    """One view.

    Attributes:
        name: its name in SQL, and of its file.
        doc: the comment at the head of the file, as one line.
        columns_of: tables, views and records whose columns the view's are, where they have the same name.
        meanings: column -> meaning of the others.
        select: the SELECT statement.
    """

    name: str
    doc: str
    columns_of: tuple[str, ...]
    meanings: Mapping[str, str]
    select: str

    @property
    def ddl(self) -> str:
        """``CREATE OR REPLACE VIEW`` statement."""
        return f"CREATE OR REPLACE VIEW {self.name} AS\n{self.select}"


def _read(name: str) -> SqlView:
    lines = (_FOLDER / f"{name}.sql").read_text(encoding="utf-8").splitlines()
    length = next(i for i, line in enumerate(lines) if not line.startswith("--"))
    head = [line.removeprefix("--").removeprefix(" ") for line in lines[:length]]
    columns = next(i for i, line in enumerate(head) if line.startswith("Columns"))
    return SqlView(
        name,
        " ".join(head[:columns]),
        tuple(re.findall(r"`(\w+)`", head[columns])),
        names_described(head[columns + 1 :]),
        "\n".join(lines[length:]),
    )


VIEWS: tuple[SqlView, ...] = tuple(_read(name) for name in _NAMES)
