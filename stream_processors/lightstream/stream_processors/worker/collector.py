"""The garbage collector of a process that assembles."""

from __future__ import annotations

import gc

__all__ = ["relax_collector"]

COLLECTOR_THRESHOLDS = (20_000, 20, 50)
"""For :func:`gc.set_threshold`. The assembler holds the spans of open attempts, and records form no cycles: with the
default of 700 new objects, looking for some took 11% of the processor and a quarter of the throughput."""


def relax_collector() -> None:
    """Let collections pass over what is there now, and come seldom. For the whole process."""
    gc.freeze()
    gc.set_threshold(*COLLECTOR_THRESHOLDS)
