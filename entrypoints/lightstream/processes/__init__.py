"""Child processes that cannot outlive the process that started them."""

from .spawn import end_group, spawn

__all__ = ["end_group", "spawn"]
