"""How often a user's reward rule failed."""

from __future__ import annotations

import traceback

from lightstream.schemas.errors import SettingsError

__all__ = ["RuleErrors"]


class RuleErrors:
    """Counts, and ends the replay where there are too many.

    Args:
        allowed: how many there may be; ``None``: any number.

    Attributes:
        count: in how many attempts the rule failed.
        first: the first error: its rollout, what was said, and where; empty where there was none.
    """

    def __init__(self, allowed: int | None) -> None:
        self._allowed = allowed
        self.count = 0
        self.first = ""

    def add(self, rollout_id: str, error: Exception) -> None:
        """Count a failure.

        Raises:
            SettingsError: it is one too many.
        """
        self.count += 1
        self.first = self.first or f"rollout {rollout_id}: {type(error).__name__}: {error}{_place(error)}"
        if self._allowed is not None and self.count > self._allowed:
            raise SettingsError(
                f"the reward rule failed in more than {self._allowed} attempts; the first was {self.first}",
                next_step="Fix the rule, or allow more with --errors-max.",
            ) from error


def _place(error: Exception) -> str:
    """Where the rule raised; nothing where it gave something that is no reward."""
    frames = traceback.extract_tb(error.__traceback__)[1:]  # behind the call of the rule
    if not frames or frames[0].name == "_checked":
        return ""
    return f" ({frames[-1].filename}, line {frames[-1].lineno})"
