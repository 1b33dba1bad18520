"""The life cycle of rollouts, without I/O: events in; states, results and effects out."""

from .deadlines import SIGNS_OF_LIFE, Deadlines
from .fold import Transition, fold
from .limits import Limits
from .partition import FinishedInMemory, FinishedRollouts, LifecyclePartition, broken_id
from .queue import QueueEntry, WaitingRollouts
from .situation import Situation, is_waiting, open_attempt, situation_of
from .transitions import TRANSITIONS, Action, Rule

__all__ = [
    "SIGNS_OF_LIFE",
    "TRANSITIONS",
    "Action",
    "Deadlines",
    "FinishedInMemory",
    "FinishedRollouts",
    "LifecyclePartition",
    "Limits",
    "QueueEntry",
    "Rule",
    "Situation",
    "Transition",
    "WaitingRollouts",
    "broken_id",
    "fold",
    "is_waiting",
    "open_attempt",
    "situation_of",
]
