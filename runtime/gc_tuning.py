"""Tuning of the garbage collector in a process that lives long."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Generator

THRESHOLDS = (10_000, 10, 10)
"""For :func:`gc.set_threshold`. Records form no cycles, but user code may: a full collection comes after a million new
objects, a hundred megabytes or so."""


def collect_seldom() -> None:
    """Collect less often. Call it where a process of ours begins."""
    gc.set_threshold(*THRESHOLDS)


@contextlib.contextmanager
def without_collection() -> Generator[None]:
    """Collect nothing in the block, for large imports: collections took an eighth of the time to load torch and
    verl."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def tune_gc() -> None:
    """Exempt all objects made so far from collection, and collect less often.

    Call it when everything is imported and connected: modules and classes stay for good, and going over them again and
    again took a fifth of the processor.
    """
    gc.collect()
    gc.freeze()
    collect_seldom()
