"""The training ledger: the inputs and products of each step, in one transaction each. Kafka's is in ``kafka``."""

from .memory import MemoryLedger

__all__ = ["MemoryLedger"]
