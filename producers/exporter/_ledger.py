"""Counts the spans of each attempt and their outcomes, without a lock between agent and sender.

Agents count under one lock, the sending side under another: an agent that ends a span never waits for a thread that
encodes (such a wait costs a whole interpreter switch interval, 5 ms).
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

from lightstream.runtime.kafka import Delivered

from ..context import AttemptRef

PRUNE_FROM_GROUPS = 1024
"""Attempts that nobody flushes leave a small entry each; from this many on, settled ones are removed."""


@dataclass(slots=True, eq=False)
class Group:
    """Spans of one attempt handed over since the last flush.

    Attributes:
        handed: spans handed over; only the agents' side writes it.
        settled: spans that are durable or failed; only the sending side writes it.
        failed: of these, spans that are lost; ``first_error`` says why.
        rejected: spans refused at the door (agents' side).
        sealed: no span is added any more; ``done`` is set once all are settled.
        delivered: settles one of its spans; kept here, so that it need not be made for each.
    """

    handed: int = 0
    settled: int = 0
    failed: int = 0
    first_error: str = ""
    rejected: int = 0
    rejected_error: str = ""
    sealed: bool = False
    delivered: Delivered | None = None
    done: threading.Event = field(default_factory=threading.Event)


class Ledger:
    """The groups of one exporter.

    Attributes:
        durable, failed: spans so far, of all groups.
    """

    def __init__(self) -> None:
        self.durable = 0
        self.failed = 0
        self.door = threading.Lock()
        """Held by agents for the few instructions of a hand-over."""
        self._settling = threading.Lock()
        self._open: dict[AttemptRef | None, Group] = {}
        self._sealed: dict[AttemptRef | None, list[Group]] = {}

    def group_of(self, attempt: AttemptRef | None) -> Group:
        """The group that takes this attempt's next span. Call with ``door`` held."""
        group = self._open.get(attempt)
        if group is None:
            if len(self._open) >= PRUNE_FROM_GROUPS:
                self._prune()
            group = self._open[attempt] = Group()
        return group

    def settle(self, group: Group, error: str | None) -> None:
        """One span of ``group`` is durable (``error`` is ``None``) or lost."""
        with self._settling:
            group.settled += 1
            if error is None:
                self.durable += 1
            else:
                self.failed += 1
                group.failed += 1
                group.first_error = group.first_error or error
            if group.sealed and group.settled == group.handed:
                group.done.set()

    def seal(self, attempt: AttemptRef | None = None, *, every: bool = False) -> list[tuple[AttemptRef | None, Group]]:
        """Close the groups of one attempt, or all, and return the groups not yet reported as done."""
        with self.door:
            for key in list(self._open) if every else [attempt]:
                group = self._open.pop(key, None)
                if group is not None:
                    self._sealed.setdefault(key, []).append(group)
            keys = list(self._sealed) if every else [attempt]
            groups = [(key, group) for key in keys for group in self._sealed.get(key, ())]
        with self._settling:
            for _, group in groups:
                group.sealed = True
                if group.settled == group.handed:
                    group.done.set()
        return groups

    def wait(self, groups: list[tuple[AttemptRef | None, Group]], timeout_s: float) -> int:
        """Wait until all spans of ``groups`` are settled; returns how many are not. Settled groups are forgotten."""
        deadline = time.monotonic() + timeout_s
        unsettled = 0
        for key, group in groups:
            if group.done.wait(max(0.0, deadline - time.monotonic())):
                with self.door:
                    sealed = self._sealed.get(key, [])
                    if group in sealed:
                        sealed.remove(group)
                    if not sealed:
                        self._sealed.pop(key, None)
            else:
                unsettled += group.handed - group.settled
        return unsettled

    def _prune(self) -> None:
        settled = [k for k, g in self._open.items() if g.settled == g.handed and not g.failed and not g.rejected]
        for key in settled:
            del self._open[key]
