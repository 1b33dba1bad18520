"""The table lets an event through, but its content does not fit."""

from __future__ import annotations

from lightstream.schemas.records import VerdictOutcome

__all__ = ["Rejected"]


class Rejected(Exception):  # noqa: N818  # not an error: the event is answered
    """The event changes nothing; its verdict says why."""

    def __init__(self, reason: str, outcome: VerdictOutcome = VerdictOutcome.REFUSED) -> None:
        super().__init__(reason)
        self.outcome = outcome
