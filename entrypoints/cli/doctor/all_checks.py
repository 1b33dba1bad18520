"""The doctor's checks, in the order of its report."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from lightstream.runtime.settings import Settings

from . import cluster, machine, processes
from .finding import Finding

Check: TypeAlias = Callable[[Settings], Iterator[Finding]]
"""Looks at one thing, and changes nothing. Blocks for some seconds at most."""

CHECKS: Sequence[Check] = (
    machine.programs,
    machine.disk,
    machine.limits,
    machine.modes,
    machine.tokens,
    machine.tls,
    machine.ports,
    cluster.cluster,
    cluster.clock,
    cluster.registry,
    processes.processes,
)


def findings(settings: Settings) -> Iterator[Finding]:
    """Yield the findings of each check."""
    for check in CHECKS:
        yield from check(settings)
