"""The outcome of an attempt."""

from __future__ import annotations

import traceback
from dataclasses import dataclass, field
from typing import Any

from lightstream.schemas.both_ends import both_ends
from lightstream.schemas.types import AttemptStatus

MESSAGE_CHARACTERS_MAX = 16 * 1024
"""Of an error's text and trace: it travels in records that everyone reads."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of an agent, or the reason of its failure.

    Attributes:
        result: what it returned.
        error_type: name of the exception; ``None`` means that it succeeded.
        error_message: its text, and where it was raised.
        timed_out: whether the Runner stopped waiting at the deadline. The life cycle measures the same one, and
            whoever notices first says the same: whether the attempt may be retried depends on it.
        error: the exception itself, for callers in the same process.
    """

    result: Any = None
    error_type: str | None = None
    error_message: str | None = None
    timed_out: bool = False
    error: BaseException | None = field(default=None, repr=False, compare=False)

    @property
    def succeeded(self) -> bool:
        return self.error_type is None

    @property
    def status(self) -> AttemptStatus:
        """Of the attempt, as it is reported."""
        if self.timed_out:
            return "timeout"
        return "succeeded" if self.succeeded else "failed"

    @classmethod
    def of_error(cls, error: BaseException) -> Outcome:
        """The failure that ``error`` is."""
        trace = "".join(traceback.format_exception(error))
        message = both_ends(f"{error}\n{trace}", MESSAGE_CHARACTERS_MAX)
        text = message.encode("utf-8", "replace").decode("utf-8")
        return cls(error_type=type(error).__name__, error_message=text, error=error)

    @classmethod
    def of_timeout(cls, timeout_s: float) -> Outcome:
        """The agent did not return in time."""
        return cls(
            error_type="Timeout",
            error_message=f"the agent did not return within {timeout_s:g} s",
            timed_out=True,
        )
