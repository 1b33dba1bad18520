"""The SQL views, in an order in which each finds the views that it reads."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_INDENT = "  "
_NANOS = "_unix_nano"
_FOLDER = Path(__file__).parent

_NAMES = (
    "rollouts",
    "attempts",
    "trajectories",
    "triplets",
    "rewards",
    "scores",
    "assembler_drops",
    "spans",
    "unaccounted_calls",
    "call_spans",
    "unassembled",
    "recorded_calls",
    "llm_calls",
    "costs",
    "release_calls",
    "dropped",
    "tools",
    "shared_spans",
    "resources",
    "prompts",
    "training_steps",
    "consumed_calls",
    "consumed",
    "trained",
    "workers",
    "run_states",
    "dead_letters",
    "release_changes",
    "releases",
    "gate_reports",
    "gate_checks",
    "release_alarms",
    "call_accounting",
    "training_accounting",
    "not_trained_reasons",
    "reasons_unsettled",
    "reason_codes",
    "why_not_trained",
    "funnel",
    "runs",
    "groups",
    "calls_by_reason",
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

    def ddl(self, columns: Sequence[str]) -> str:
        """``CREATE OR REPLACE VIEW`` statement: beside each ``*_unix_nano`` the same time as a ``*_at``.

        Args:
            columns: those of :attr:`select`.
        """
        select = self.select
        if times := times_of(columns):
            shown = [column for column in columns if column not in times]  # a view that it reads may have them already
            select = f"SELECT {', '.join(map(_with_time, shown))} FROM (\n{select}\n)"  # noqa: S608  # our files
        return f"CREATE OR REPLACE VIEW {self.name} AS\n{select}"


def time_column(name: str) -> str | None:
    """``x_at`` for a column ``x_unix_nano``, ``None`` for any other."""
    stem = name.removesuffix(_NANOS)
    return None if stem == name else f"{stem}_at"


def times_of(columns: Iterable[str]) -> list[str]:
    """The times that a view with these columns has beside them."""
    return [at for name in columns if (at := time_column(name)) is not None]


def _with_time(name: str) -> str:
    at = time_column(name)
    return f'"{name}"' if at is None else f"{name}, make_timestamp({name} // 1000) AS {at}"


def _read(name: str) -> SqlView:
    lines = (_FOLDER / f"{name}.sql").read_text(encoding="utf-8").splitlines()
    length = next(i for i, line in enumerate(lines) if not line.startswith("--"))
    head = [line.removeprefix("--").removeprefix(" ") for line in lines[:length]]
    columns = next(i for i, line in enumerate(head) if line.startswith("Columns"))
    return SqlView(
        name,
        " ".join(head[:columns]),
        tuple(re.findall(r"`(\w+)`", head[columns])),
        _meanings(head[columns + 1 :]),
        "\n".join(lines[length:]),
    )


def _meanings(lines: Iterable[str]) -> dict[str, str]:
    """Column -> meaning of lines such as ``made: how many LLM calls there were.``; one that is indented further goes on
    with the line before it."""
    meanings: dict[str, str] = {}
    whole: list[str] = []
    for line in lines:
        if line.startswith(_INDENT * 2):
            whole[-1] += f" {line.strip()}"
        else:
            whole.append(line)
    for line in whole:
        columns, _, meaning = line.strip().partition(": ")
        meanings |= dict.fromkeys(columns.split(", "), meaning)
    return meanings


VIEWS: tuple[SqlView, ...] = tuple(_read(name) for name in _NAMES)
