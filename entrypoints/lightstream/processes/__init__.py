"""Child processes that cannot outlive the process that started them."""

from .group import end_group
from .spawn import spawn

__all__ = ["end_group", "spawn"]
