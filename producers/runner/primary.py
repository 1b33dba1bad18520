"""Which of several rewards by name is the reward: one rule for agents, verifiers and servers of environments."""

from __future__ import annotations

from collections.abc import Iterable

PRIMARY_KEYS = ("primary", "reward")


def primary_key_of(names: Iterable[str]) -> str | None:
    """The name of the reward that trains: ``primary``, else ``reward``, else the first; ``None`` of none."""
    known = list(names)
    return next((key for key in PRIMARY_KEYS if key in known), known[0] if known else None)
