"""verl in several processes that Ray starts, on one machine or on many: our engine in each, or verl's own trainer."""

from .engine import RayEngine
from .ppo_engine import PPOTrainerEngine

__all__ = ["PPOTrainerEngine", "RayEngine"]
