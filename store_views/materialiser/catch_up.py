"""How far a view that starts is on its way to where the log ended when it started."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from .positions import Place

logger = logging.getLogger(__name__)

LOG_INTERVAL_S = 5.0


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a view that does not show all of the log yet.

    Attributes:
        records_done, records_total: counted by their offsets, from where the file stood.
        records_per_s: since the start.
        seconds_left: at that rate; ``None`` while there is none.
    """

    records_done: int
    records_total: int
    records_per_s: float
    seconds_left: float | None

    def __str__(self) -> str:
        remaining = "" if self.seconds_left is None else f", {self.seconds_left:,.0f} s left"
        return (
            f"{self.records_done:,} of {self.records_total:,} records "
            f"({100 * self.records_done // self.records_total} %), {self.records_per_s:,.0f} a second{remaining}"
        )


class CatchUp:
    """Compares positions with the log's ends of the start, and logs the progress every five seconds.

    Written by one thread; :attr:`progress` is for any.

    Args:
        start: place -> next offset, as the file has it.
        ends: place -> end of the log.
        now_s: a clock that never goes back.

    Attributes:
        progress: ``None`` once everything below the ends is reflected, and from then on.
    """

    def __init__(
        self, start: Mapping[Place, int], ends: Mapping[Place, int], *, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._start = {place: min(start.get(place, 0), end) for place, end in ends.items()}
        self._missing = {place: end for place, end in ends.items() if self._start[place] < end}
        self._done = dict(self._start)
        self._ends = dict(ends)
        self._total = sum(ends.values()) - sum(self._start.values())
        self._now_s = now_s
        self._began_s = self._logged_s = now_s()
        self.progress: Progress | None = Progress(0, self._total, 0.0, None) if self._missing else None

    def advance(self, next_offsets: Mapping[Place, int]) -> None:
        """Say that everything below these offsets is reflected."""
        if not self._missing:
            return
        for place in next_offsets.keys() & self._missing.keys():
            self._done[place] = min(next_offsets[place], self._ends[place])
            if self._done[place] == self._ends[place]:
                del self._missing[place]
        now_s = self._now_s()
        self.progress = self._progress(now_s - self._began_s) if self._missing else None
        if self.progress is None and self._logged_s > self._began_s:
            logger.info("the view has caught up: %s records in %.0f s", f"{self._total:,}", now_s - self._began_s)
        elif self.progress is not None and now_s - self._logged_s >= LOG_INTERVAL_S:
            self._logged_s = now_s
            logger.info("the view catches up: %s", self.progress)

    def _progress(self, seconds: float) -> Progress:
        done = sum(self._done.values()) - sum(self._start.values())
        rate = done / seconds if seconds > 0 else 0.0
        return Progress(done, self._total, rate, (self._total - done) / rate if rate else None)
