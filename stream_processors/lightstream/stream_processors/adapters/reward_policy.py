"""Which call a reward without a link is for."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["RewardMatchPolicy"]


class RewardMatchPolicy(StrEnum):
    """Policies of Agent Lightning; both names are rules of the core (``core.rewards``).

    A reward that links to a call is that call's under either. "Before" means earlier in the log, never by the clock.
    """

    FIRST_SIBLING = "first_sibling"
    """The last call before the reward, among its siblings in the tree, that has no reward yet."""

    FIRST_OCCURRENCE = "first_occurrence"
    """The last call before the reward that has no reward yet."""
