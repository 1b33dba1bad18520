"""One result of the doctor."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """The weight of a finding."""

    FINE = "fine"
    WARNING = "warning"
    """It works, and may not for long, or not for all."""
    ERROR = "error"
    """Something does not work."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding of one check.

    Attributes:
        check: name of the check.
        text: what was seen, as a sentence.
        next_step: what a person does about it; empty where nothing is to be done.
    """

    check: str
    level: Level
    text: str
    next_step: str = ""
