"""Complete groups of trajectories, collected from a log that repeats itself. No Kafka here."""

from .collector import Arrival, Group, GroupCollector, SkippedGroups, group_id_of, natural_order
from .deadlines import Deadlines
from .settled import SettledGroups

__all__ = [
    "Arrival",
    "Deadlines",
    "Group",
    "GroupCollector",
    "SettledGroups",
    "SkippedGroups",
    "group_id_of",
    "natural_order",
]
