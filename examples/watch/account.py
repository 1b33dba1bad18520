"""Whether everything that was made is accounted for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rich.table import Table

from lightstream.trainers import ViewClient

__all__ = ["Account", "take_account"]

WAIT_S = 60.0


@dataclass(frozen=True, slots=True)
class Account:
    """The sums across the pipeline, as the views ``call_accounting`` and ``training_accounting`` have them."""

    calls: dict[str, Any]
    training: dict[str, Any]
    dead_letters: int

    @property
    def is_balanced(self) -> bool:
        """Every LLM call has one fate, every consumed trajectory was trained once, no record was unusable."""
        return bool(self.calls["balanced"]) and bool(self.training["balanced"]) and self.dead_letters == 0

    def table(self) -> Table:
        """Counts of what was made, where it went, and what was lost."""
        table = Table(title="What became of everything", title_justify="left")
        table.add_column("")
        table.add_column("count", justify="right")
        table.add_column("must be")
        calls, training = self.calls, self.training
        lost = calls["made"] - calls["in_triplets"] - calls["dropped"] - calls["pending"]
        rows = [
            ("LLM calls made", calls["made"], "triplets + dropped + pending"),
            ("  in triplets", calls["in_triplets"], ""),
            ("  dropped, with a reason", calls["dropped"], ""),
            ("  pending (attempt still open)", calls["pending"], ""),
            ("  lost", lost, "0"),
            ("  counted twice", calls["counted_twice"], "0"),
            ("trajectories in consumed groups", training["in_consumed_groups"], ""),
            ("trajectories consumed", training["consumed"], "the same"),
            ("  consumed twice", training["consumed_twice"], "0"),
            ("training steps repeated", training["steps_repeated"], "0"),
            ("training steps skipped", training["steps_skipped"], "0"),
            ("dead letters", self.dead_letters, "0"),
        ]
        for name, count, expected in rows:
            table.add_row(name, f"{count:,}", expected)
        return table


def take_account(view: ViewClient) -> Account:
    """The account of everything that is in the log now.

    Raises:
        ServiceUnavailableError: the view does not answer, or has not caught up within a minute.
    """
    view.wait_for("now", wait_s=WAIT_S)
    return Account(
        calls=view.query("SELECT * FROM call_accounting").dicts()[0],
        training=view.query("SELECT * FROM training_accounting").dicts()[0],
        dead_letters=int(view.query("SELECT count(*) FROM dead_letters").scalar()),
    )
