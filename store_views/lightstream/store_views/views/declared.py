"""The SQL views, in an order in which each finds those it reads."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

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
        select: the SELECT statement.
    """

    name: str
    doc: str
    select: str

    @property
    def ddl(self) -> str:
        """``CREATE OR REPLACE VIEW`` statement."""
        return f"CREATE OR REPLACE VIEW {self.name} AS\n{self.select}"


def _read(name: str) -> SqlView:
    lines = (_FOLDER / f"{name}.sql").read_text(encoding="utf-8").splitlines()
    comment = [line for line in lines if line.startswith("--")]
    head = comment[: next((i for i, line in enumerate(lines) if not line.startswith("--")), 0)]
    return SqlView(name, " ".join(line.lstrip("- ") for line in head), "\n".join(lines[len(head) :]))


VIEWS: tuple[SqlView, ...] = tuple(_read(name) for name in _NAMES)
