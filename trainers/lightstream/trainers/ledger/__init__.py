"""The training ledger: which step consumed what and produced what, in one Kafka transaction each."""

from .history import History, replay
from .ledger import StepCommit, TrainingLedger

__all__ = ["History", "StepCommit", "TrainingLedger", "replay"]
