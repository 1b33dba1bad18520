"""Supervised fine-tuning on agents' rollouts, or on conversations."""

from .algorithm import SFT

__all__ = ["SFT"]
