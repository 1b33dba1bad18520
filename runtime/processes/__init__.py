"""Child processes: starting them, keeping them running, and ending them with all that they started."""

from .restarts import Restarts, forget_restarts, note_restart, read_restarts
from .spawn import end_group, spawn
from .supervisor import RESTART_STATUS, RestartPolicy, Supervisor, Unit
from .unit import ProcessUnit, child_environment, stopped_while_starting

__all__ = [
    "RESTART_STATUS",
    "ProcessUnit",
    "RestartPolicy",
    "Restarts",
    "Supervisor",
    "Unit",
    "child_environment",
    "end_group",
    "forget_restarts",
    "note_restart",
    "read_restarts",
    "spawn",
    "stopped_while_starting",
]
