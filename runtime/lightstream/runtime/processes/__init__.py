"""Child processes: starting them, keeping them running, and ending them with all that they started."""

from .spawn import end_group, spawn
from .supervisor import RestartPolicy, Supervisor, Unit
from .unit import ProcessUnit, child_environment, stopped_while_starting

__all__ = [
    "ProcessUnit",
    "RestartPolicy",
    "Supervisor",
    "Unit",
    "child_environment",
    "end_group",
    "spawn",
    "stopped_while_starting",
]
