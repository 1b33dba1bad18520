"""Tuning of the garbage collector in a process that lives long."""

from __future__ import annotations

import gc

__all__ = ["tune_gc"]

THRESHOLDS = (10_000, 10, 10)
"""For :func:`gc.set_threshold`. Records form no cycles, but user code may: a full collection comes after a million new
objects, a hundred megabytes or so."""


def tune_gc() -> None:
    """Exempt all objects made so far from collection, and collect less often.

    Call it when everything is imported and connected: modules and classes stay for good, and going over them again and
    again took a fifth of the processor.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
