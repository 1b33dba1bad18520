"""Environments: a versioned set of tasks, an agent, and a verifier that rewards its work."""

from .difficulty import TaskRate, by_difficulty
from .environment import Environment, EnvironmentFailedError
from .loading import generated_task_set, load_task_set, task_set, task_set_of
from .sets import Task, TaskSet

__all__ = [
    "Environment",
    "EnvironmentFailedError",
    "Task",
    "TaskRate",
    "TaskSet",
    "by_difficulty",
    "generated_task_set",
    "load_task_set",
    "task_set",
    "task_set_of",
]
