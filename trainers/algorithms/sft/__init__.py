"""Supervised fine-tuning on what agents did, or on conversations."""

from .algorithm import SFT

__all__ = ["SFT"]
