"""The garbage collector of a process that lives long."""

from __future__ import annotations

import gc

__all__ = ["relax_collector", "spare_what_is_there"]

COLLECTOR_THRESHOLDS = (20_000, 20, 50)
"""For :func:`gc.set_threshold`. The assembler holds the spans of open attempts, and records form no cycles: with the
default of 700 new objects, looking for some took 11% of the processor and a quarter of the throughput."""


BESIDE_OTHERS_CODE = (10_000, 10, 10)
"""As above, where user code runs too, which may leave large cycles: all is looked at after a million
new objects, a hundred megabytes or so. A store's client takes 10% less processor than with the defaults."""


def spare_what_is_there() -> None:
    """Let collections pass over modules, classes and all else that was made so far: it stays for good anyway.

    And let them come less often. For the whole process, which may run user code; call it when everything is imported
    and connected. Of a store's client that hands out 1,000 rollouts a second, looking through it again and again took a
    fifth of the processor.
    """
    _freeze()
    gc.set_threshold(*BESIDE_OTHERS_CODE)


def relax_collector() -> None:
    """As :func:`spare_what_is_there`, and let collections come seldom: for a process that runs nothing but our code."""
    _freeze()
    gc.set_threshold(*COLLECTOR_THRESHOLDS)


def _freeze() -> None:
    gc.collect()
    gc.freeze()
