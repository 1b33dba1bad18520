"""Short names of execution strategies."""

from __future__ import annotations

__all__ = ["ExecutionStrategyRegistry"]

ExecutionStrategyRegistry = {
    "cs": "lightstream.agl.execution.ClientServerExecutionStrategy",
    "shm": "lightstream.agl.execution.SharedMemoryExecutionStrategy",
}
