"""verl's engine in several processes that Ray starts, on one machine or on many."""

from .engine import RayEngine

__all__ = ["RayEngine"]
