"""The training ledger: which step consumed what and produced what, in one transaction each. Kafka's is in ``kafka``."""

from .history import History, StepCommit, replay
from .memory import MemoryLedger

__all__ = ["History", "MemoryLedger", "StepCommit", "replay"]
