"""Complete groups of trajectories, collected from a log that repeats itself. No Kafka here."""

from .collector import Arrival, Group, GroupCollector, SkippedGroups, group_id_of, natural_order
from .deadlines import Deadlines

__all__ = [
    "Arrival",
    "Deadlines",
    "Group",
    "GroupCollector",
    "SkippedGroups",
    "group_id_of",
    "natural_order",
]
