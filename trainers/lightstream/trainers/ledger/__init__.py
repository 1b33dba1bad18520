"""The training ledger: which step consumed what and produced what, in one transaction each. Kafka's is in ``kafka``."""

from .history import MEAN_REWARDS_KEPT, History, StepCommit, replay
from .memory import MemoryLedger

__all__ = ["MEAN_REWARDS_KEPT", "History", "MemoryLedger", "StepCommit", "replay"]
