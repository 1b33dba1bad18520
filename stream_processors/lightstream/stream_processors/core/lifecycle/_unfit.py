"""The table lets a fact through, but its content does not fit."""

from __future__ import annotations

from lightstream.schemas.records import VerdictOutcome

__all__ = ["Unfit"]


class Unfit(Exception):  # noqa: N818  # not an error: the fact is answered
    """The fact changes nothing; its verdict says why."""

    def __init__(self, reason: str, outcome: VerdictOutcome = VerdictOutcome.REFUSED) -> None:
        super().__init__(reason)
        self.outcome = outcome
