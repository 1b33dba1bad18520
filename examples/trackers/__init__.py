"""Curves in TensorBoard and in a file of one's own: ``python -m examples.trackers``."""
