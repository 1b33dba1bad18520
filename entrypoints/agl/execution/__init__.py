"""Execution strategies: the processes in which an algorithm and its Runners run."""

from __future__ import annotations

from .._names import add_parts
from .base import ExecutionEvent, ExecutionStrategy, MultiprocessingEvent, ThreadingEvent
from .client_server import ClientServerExecutionStrategy
from .shared_memory import SharedMemoryExecutionStrategy

__all__ = [
    "ClientServerExecutionStrategy",
    "ExecutionEvent",
    "ExecutionStrategy",
    "MultiprocessingEvent",
    "SharedMemoryExecutionStrategy",
    "ThreadingEvent",
]

add_parts(__name__)
