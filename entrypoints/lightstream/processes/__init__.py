"""Child processes that cannot outlive the process that started them."""

from .spawn import spawn

__all__ = ["spawn"]
