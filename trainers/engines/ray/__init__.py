"""verl in several processes that Ray starts, on one machine or on many: our engine in each."""

from .engine import RayEngine

__all__ = ["RayEngine"]
