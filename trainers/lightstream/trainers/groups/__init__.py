"""Complete groups of trajectories, collected from a log that repeats itself. Pure: no Kafka here."""

from .collector import Arrival, GroupCollector
from .group import Group, group_id_of
from .order import natural_order

__all__ = ["Arrival", "Group", "GroupCollector", "group_id_of", "natural_order"]
