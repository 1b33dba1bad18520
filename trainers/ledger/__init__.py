"""The training ledger: which step consumed what and produced what, in one transaction each. Kafka's is in ``kafka``."""

from .memory import MemoryLedger

__all__ = ["MemoryLedger"]
