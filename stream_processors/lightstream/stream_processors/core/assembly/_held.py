"""What an open attempt holds."""

from __future__ import annotations

from dataclasses import dataclass, field

from lightstream.schemas.records import AttemptOpened, Drop

from ..rewards import RewardReading
from ._observation import Observation
from ._tree import Node, SpanKey

__all__ = ["Held"]


@dataclass(slots=True)
class Held:
    """All lists are in log order; ``nodes`` has one entry per distinct span, in log order too.

    Attributes:
        conflicts: drops of spans whose id was taken, by that id and a fingerprint of what they say.
        full_from_offset: where the first span lies that was not taken, as there were too many; -1: none.
    """

    opened: AttemptOpened
    nodes: dict[SpanKey, Node] = field(default_factory=dict[SpanKey, Node])
    observations: list[Observation] = field(default_factory=list[Observation])
    rewards: list[RewardReading] = field(default_factory=list[RewardReading])
    conflicts: dict[tuple[SpanKey, int], Drop] = field(default_factory=dict[tuple[SpanKey, int], Drop])
    full_from_offset: int = -1
